"""Where a model folder goes: a small copy, a Space, a site or one file, an application, the Hub."""
