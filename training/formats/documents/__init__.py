"""Web pages, books, Word and PDF documents, and subtitles, to texts."""
