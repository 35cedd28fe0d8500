"""How the bytes of a text become characters: by its byte-order mark, as UTF-8, or by a guess.

>>> encoding_of("Die Katze heißt Mimi und mag Käse".encode("cp1252"))
'Windows-1252'
"""

import codecs
import re

from training.formats.found import NoText, Unreadable

HEAD = 1 << 16  # bytes that are looked at
UTF8 = "utf-8"
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# What Windows, Unix and East Asia had before UTF-8. With all that chardet knows, those of DOS and
# of ISO among them, it errs more often in short texts (docs/log.md, 2026-11-29).
GUESSES = (
    "windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254",
    "windows-1255", "windows-1256", "windows-1258", "koi8-r", "gb18030", "big5hkscs", "cp932",
    "euc-jp", "cp949",
)  # fmt: skip
REPLACED = "\ufffd"  # what stands for bytes that are not UTF-8
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # in no text
SAVE_OFFICE = "save a table as .xlsx or CSV, words as .docx, text or PDF"
BINARY = {  # how files begin that hold no text, and what helps, if something does
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"BM": "a bitmap picture",
    b"II*\0": "a TIFF or raw picture",
    b"MM\0*": "a TIFF or raw picture",
    b"IIU\0": "a raw picture",
    b"IIR": "a raw picture",
    b"FUJIFILMCCD-RAW": "a raw picture",
    b"\0\0\1\0": "an icon, which is a picture",
    b"8BPS": "a Photoshop picture",
    b"P4": "a PNM picture",
    b"P5": "a PNM picture",
    b"P6": "a PNM picture",
    b"\0\0\0\x0cjP  ": "a JPEG 2000 picture",
    b"\0\0\0\x0cJXL ": "a JPEG XL picture",
    b"\xff\x0a": "a JPEG XL picture",
    b"RIFF": "a sound, film or WebP picture",
    b"ID3": "an MP3 sound",
    b"\xff\xfb": "an MP3 sound",
    b"\xff\xf3": "an MP3 sound",
    b"\xff\xf2": "an MP3 sound",
    b"\xff\xf1": "an AAC sound",
    b"\xff\xf9": "an AAC sound",
    b"OggS": "an Ogg sound",
    b"fLaC": "a FLAC sound",
    b"#!AMR": "an AMR sound",
    b"caff": "a CAF sound",
    b"MThd": "a MIDI sound",
    b"\x1aE\xdf\xa3": "a WebM or Matroska film or sound",
    b"0&\xb2u\x8ef\xcf\x11": "a film or sound of Windows Media",
    b"FLV\1": "a Flash film",
    b"\0\0\1\xba": "an MPEG film",
    b"\0\0\1\xb3": "an MPEG film",
    b"AT&TFORM": "a DjVu scan: save it as PDF",
    b"bplist": "a web archive of Apple's: save the page as HTML",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"SQLite format 3\0": "an SQLite database",
    b"GGUF": "a model",
    b"\x80\x02": "a Python pickle",
    b"\x80\x04": "a Python pickle",
    b"\xd0\xcf\x11\xe0": f"an old or locked Office document: {SAVE_OFFICE}, without a password",
    b"Rar!": "a RAR archive: unpack it",
    b"7z\xbc\xaf": "a 7z archive: unpack it",
    b"BZh": "a bzip2 archive: unpack it",
    b"\xfd7zXZ": "an xz archive: unpack it",
}
PLACED = {  # what stands at a place of files that hold no text; with a longer mark first
    (257, b"ustar"): "a tar archive: unpack it",
    (60, b"BOOKMOBI"): "a Kindle book: save it as EPUB or text",
    (8, b"WEBP"): "a WebP picture",
    (8, b"WAVE"): "a WAV sound",
    (8, b"AVI "): "an AVI film",
    (8, b"AIF"): "an AIFF sound",
    (4, b"ftyphe"): "a HEIC picture",
    (4, b"ftypmif1"): "a HEIC picture",
    (4, b"ftypavi"): "an AVIF picture",
    (4, b"ftypcrx"): "a raw picture",
    (4, b"ftypM4"): "an M4A sound or M4V film",
    (4, b"ftyp"): "an MP4 film or sound",
    (4, b"moov"): "a QuickTime film",
    (4, b"mdat"): "a QuickTime film",
    (4, b"wide"): "a QuickTime film",
}
NUL = "it is binary, not text, such as a picture or a program (it holds NUL characters)"


def encoding_of(head: bytes) -> str:
    """Return the encoding of the text that begins so. Raises Unreadable for binary data.

    It is UTF-8 too if nothing better can be guessed: reading then fails, and the error names the
    line.
    """
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    if head.startswith(b"{\\rtf"):
        raise Unreadable("it is an RTF document: save it as text or PDF")
    if name := binary(head):
        raise (Unreadable if ":" in name else NoText)(f"it is {name}")
    if b"\0" in head:
        if looks_like_utf16(head):
            raise Unreadable("it is UTF-16 without a byte-order mark: save it as UTF-8")
        raise NoText(NUL)
    return UTF8 if is_text(head) else guess(head) or UTF8


def binary(head: bytes) -> str:
    """Return what the file is that begins so, if it is known and holds no text; otherwise ""."""
    if b"\0" in head:
        for (place, mark), name in PLACED.items():
            if head.startswith(mark, place):
                return name
    for mark, name in BINARY.items():
        if head.startswith(mark) and not (is_text(head) or guess(head)):
            return name
    return ""


def note(encoding: str) -> str:
    """Return what a person must know of a text that is read so; "" if its encoding is certain."""
    if encoding in (UTF8, *MARKS.values()):
        return ""
    return f"read as {encoding} (if its letters look wrong, save it as UTF-8)"


def guess(head: bytes) -> str | None:
    """Return the encoding that a text which is not UTF-8 is likely to have, or None.

    None too for a damaged UTF-8: most of its characters beyond ASCII are whole, which those of
    another encoding hardly ever are by chance.
    """
    import chardet

    as_utf8 = head.decode(UTF8, errors="replace")
    beyond = sum(not character.isascii() for character in as_utf8)
    if beyond >= 2 * as_utf8.count(REPLACED):
        return None
    # Below a line end, chardet too takes "BMW" for a word and not for a bitmap picture.
    name = chardet.detect(b"\n" + head, include_encodings=GUESSES)["encoding"]
    if name is None or CONTROL.search(head.decode(name, errors="ignore")):
        return None
    return name


def decoded(head: bytes) -> str:
    """Return the beginning of a file as text, of which the last character may be cut."""
    return head.decode(encoding_of(head), errors="ignore")


def is_text(head: bytes) -> bool:
    """Whether these bytes are UTF-8 without NUL characters; the last character may be cut."""
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def looks_like_utf16(head: bytes) -> bool:
    """Whether every other byte is NUL in most of the text, as in UTF-16 of a European language."""
    sides = [head[side::2].count(0) / max(len(head[side::2]), 1) for side in (0, 1)]
    return max(sides) > 0.7 and min(sides) < 0.1
