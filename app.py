"""The page as a checkout or a Hugging Face Space starts it: python app.py [--help].

It is the command `gptcore` of the installed package; all of it is in gptcore/.
"""

import sys

from gptcore.__main__ import main

if __name__ == "__main__":
    sys.exit(main(program="python app.py"))
