"""What assistants export of talks: which branch is read, who speaks, and what is no text."""

from pathlib import Path
from typing import Any

from texts import CHAT, documents, told, write

from gptcore.text.chat_template import messages_of


def node(parent: str | None, role: str, parts: list, kind: str = "text", **more: Any) -> dict:
    """A message as ChatGPT exports it."""
    content = {"content_type": kind, "parts": parts}
    return {"message": {"author": {"role": role}, "content": content, **more}, "parent": parent}


CHATGPT = {
    "title": "Greetings",
    "mapping": {
        "root": {"message": None, "parent": None, "children": ["0"]},
        "0": node("root", "system", [""]),
        "1": node("0", "user", ["Hi"]),
        "2": node("1", "assistant", ["A reply that was made again."]),
        "3": node("1", "assistant", ["Let me look."], recipient="all"),
        "4": node("3", "assistant", ["search('Hi')"], "code", recipient="browser"),
        "5": node("4", "tool", ["A page."]),
        "6": node("5", "assistant", ["Hello!"]),
        "7": node("6", "user", ["Bye"]),
        "8": node("7", "assistant", ["Goodbye!"]),
    },
    "current_node": "8",
}
PICTURE = {"mapping": {"1": node(None, "user", [{"asset_pointer": "file-1"}, "What is it?"])}}
PICTURE = {**PICTURE, "current_node": "1"}


def test_chatgpts_export_is_read_along_the_branch_that_was_shown_last(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", [CHATGPT, PICTURE])
    assert documents(path) == [messages_of(["Hi", "Let me look.\nHello!", "Bye", "Goodbye!"])]
    said = told(path)
    assert "JSON, 1 conversation" in said
    assert "skipped 2: a message of the role 'tool' (first: value 1)" in said
    assert "skipped 1: message 1 has parts that are not text (first: value 2)" in said


def test_chatgpts_talks_by_voice_are_read_and_its_marks_of_sources_are_not(tmp_path: Path) -> None:
    def spoken(text: str, kind: str) -> list[dict[str, Any]]:
        return [{"content_type": "audio_transcription", "text": text}, {"content_type": kind}]

    marked = '\ue200entity\ue202["city","Rome","in Italy"]\ue201 it is. \ue200cite\ue202turn0\ue201'
    mapping = {
        "1": node(None, "user", spoken("Hi", "real_time_user_audio_video_asset_pointer")),
        "2": node("1", "assistant", spoken("Hello!", "audio_asset_pointer"), "multimodal_text"),
        "3": node("2", "user", ["Which city?"]),
        "4": node("3", "assistant", [marked]),
    }
    [talk] = documents(write(tmp_path / "a.json", [{"mapping": mapping, "current_node": "4"}]))
    said = [turn["content"].strip() for turn in talk]
    assert said == ["Hi", "Hello!", "Which city?", "Rome it is."]


def test_a_talk_of_googles_ai_studio_is_read_without_its_thoughts(tmp_path: Path) -> None:
    chunks = [
        {"text": "Hi", "role": "user", "tokenCount": 1},
        {"text": "They greet me.", "role": "model", "isThought": True},
        {"text": "Hello!", "role": "model", "finishReason": "STOP"},
    ]
    prompt = {"runSettings": {}, "systemInstruction": {}, "chunkedPrompt": {"chunks": chunks}}
    assert documents(write(tmp_path / "Greeting", prompt)) == [CHAT]
    chunks[0] = {"driveImage": {"id": "1"}, "role": "user"}
    assert "message 2 has parts that are not text" in told(write(tmp_path / "Picture", prompt))


def test_claudes_export_is_read_without_its_thoughts(tmp_path: Path) -> None:
    human = {"sender": "human", "text": "Shorten it.", "content": [], "files": []}
    thoughts = [{"type": "thinking", "thinking": "Hm."}, {"type": "tool_use", "name": "search"}]
    reply = {
        "sender": "assistant",
        "text": "",
        "content": [*thoughts, {"type": "text", "text": "So."}],
    }
    attached = {**human, "attachments": [{"extracted_content": "A long text."}]}
    picture = {**human, "files": [{"file_name": "a.png"}]}
    talks = [
        {"uuid": "1", "name": "One", "chat_messages": [attached, reply]},
        {"uuid": "2", "name": "Two", "chat_messages": [picture, reply]},
        {"uuid": "3", "name": "Odd", "chat_messages": ["Hi"]},
    ]
    path = write(tmp_path / "conversations.json", talks)
    assert documents(path) == [messages_of(["A long text.\nShorten it.", "So."])]
    assert "skipped 1: message 1 has parts that are not text (first: value 2)" in told(path)
    assert "skipped 1: it is an export of an assistant in an unknown form" in told(path)
    assert len(documents(write(tmp_path / "one.json", talks[0]))) == 1


def test_deepseeks_export_is_read_along_the_newest_branch_without_thoughts(tmp_path: Path) -> None:
    def node(parent: str, **said: str) -> dict[str, Any]:
        fragments = [{"type": kind, "content": text} for kind, text in said.items()]
        return {"parent": parent, "message": {"files": [], "fragments": fragments}}

    mapping = {
        "root": {"parent": None, "message": None},
        "1": node("root", REQUEST="Hi"),
        "2": node("1", RESPONSE="Go away."),
        "3": node("1", THINK="A greeting.", RESPONSE="Hello!"),
    }
    picture = {"parent": "root", "message": {"files": [{"file_name": "a.png"}], "fragments": []}}
    talks = [{"title": "One", "mapping": mapping}, {"title": "Two", "mapping": {"1": picture}}]
    path = write(tmp_path / "conversations.json", talks)
    assert documents(path) == [CHAT]
    assert "skipped 1: message 1 has parts that are not text (first: value 2)" in told(path)


def test_groks_export_is_read_along_the_newest_branch(tmp_path: Path) -> None:
    def response(number: int, sender: str, text: str, **parent: str) -> dict[str, Any]:
        at = {"$date": {"$numberLong": f"173568960000{number}"}}
        said = {"_id": str(number), "sender": sender, "message": text, "create_time": at}
        return {"response": said | parent, "share_link": None}

    responses = [
        response(3, "ASSISTANT", "Hello!", parent_response_id="1"),
        response(2, "ASSISTANT", "Go away.", parent_response_id="1"),
        response(1, "human", "Hi"),
    ]
    talk = {"conversation": {"id": "1", "title": "One"}, "responses": responses}
    export = {"conversations": [talk], "projects": [], "tasks": []}
    assert documents(write(tmp_path / "prod-grok-backend.json", export)) == [CHAT]
