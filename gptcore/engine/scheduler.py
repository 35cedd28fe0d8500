"""The engine: one scheduler for all users of a model. Replies join and leave between steps.

>>> engine = Engine(slots, tokenizer)                                # doctest: +SKIP
>>> engine.submit(Request([5, 8, 13]), stop, deliver=print)          # doctest: +SKIP
Piece(text='Hello', n_prompt=3, n_new=1, finish=None, ...)

One thread computes, and lives as long as there is work. Each step reads a part of the prompts that
have arrived, and one token for every reply at once (continuous batching: Yu et al., Orca, OSDI
2022). Replies are independent of each other: with a seed, a reply in a crowd is what it is alone,
but for rounding. Steps of many rows equal those of one bit by bit in fp32 and 8 bits, not in 4
bits; no prompt's last token is read by itself, which would round it otherwise.

The writing replies have the first slots, so that their caches lie one after the other. Slots
without a reply rest: they hold what earlier conversations read, for the next turn of the same one
or for a prompt with the same beginning, until the slot is needed.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Lock, Thread, main_thread

import numpy as np

from gptcore.checks import Busy
from gptcore.engine.generate import Piece, Reply, Request, Stop
from gptcore.engine.replies import Replies
from gptcore.engine.rows import Closed, Deliver, Row, choose, restricted, send
from gptcore.engine.slots import Slots
from gptcore.text.tokenizer import Tokenizer

READ_ALONE = 128  # most prompt tokens read at once while no reply is written
READ_LEAST = 8  # fewest: the weights are fetched from memory for each part
READ_SECONDS = 0.15  # longest time of a part, as far as it is known; Stop waits for it
READ_BESIDE = 32  # prompt tokens read between two steps of the replies
MIN_COPIED = 16  # shorter common beginnings are read anew, which is as fast
PIECE_SECONDS = 0.025  # text is delivered at most this often

MAX_WAITING = 256  # requests that wait for a slot; more are refused


class Engine:
    """Answers as many requests at a time as there are slots.

    The asker with the fewest slots comes first, then the oldest request. If there are three or more
    slots, one asker never gets all.
    """

    def __init__(self, slots: Slots, tokenizer: Tokenizer):
        self.slots, self.tokenizer, self.replies = slots, tokenizer, Replies()
        self.lock = Lock()  # guards waiting and thread
        self.waiting: deque[Row] = deque()
        self.thread: Thread | None = None
        self.rows: list[Row | None] = [None] * slots.cache.n_slots  # by slot; written by thread
        self.used = np.zeros(slots.cache.n_slots)  # time when each slot was last needed
        self.reading: deque[Row] = deque()
        self.n_at_once = READ_BESIDE  # prompt tokens that are read within READ_SECONDS
        self.n_writing = 0  # replies being written; they have the first slots
        self.n_finished = self.n_new = 0  # replies, and their tokens, since the beginning

    @property
    def n_running(self) -> int:
        """The number of replies that wait, read their prompt or are written."""
        with self.lock:
            return len(self.waiting) + sum(row is not None for row in self.rows)

    def submit(self, request: Request, stop: Stop, deliver: Deliver, asker: str = "") -> None:
        """Queue a request, whose reply is generated and delivered piece by piece.

        `asker`: who asks, to share the slots; "" if nobody else can ask, as on one machine.
        The last piece has a `finish`; an exception is delivered in its place if the reply fails.
        Raises UserError for an invalid request, and Busy if too many wait.
        """
        reply = Reply(request, self.tokenizer, self.slots.block_size)
        row = Row(reply, stop, deliver, asker, [*request.ids, *request.begun])
        with self.lock:
            if sum(not other.stop.is_set() for other in self.waiting) >= MAX_WAITING:
                raise Busy(f"{MAX_WAITING} requests wait already: try again in a few seconds")
            if self.thread is None:
                # The end of the program waits for it: a step beside it would abort the process.
                thread = Thread(target=self.work, name="engine", daemon=False)
                thread.start()  # waits for the lock; raises where no thread is to be had
                self.thread = thread
            self.waiting.append(row)

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        """Yield the reply to a request, which begins with the first piece that is asked for.

        Closing the iterator ends the generation. Raises UserError at once for an invalid request.
        """
        request.check(self.slots.block_size)
        return self.pieces(request, Closed(stop))

    def pieces(self, request: Request, stop: Stop) -> Iterator[Piece]:
        arrived: SimpleQueue[Piece | Exception] = SimpleQueue()
        self.submit(request, stop, arrived.put)
        try:
            while True:
                piece = arrived.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish:
                    return
        finally:
            stop.set()

    # ---------------------------------------------------------- in the engine's thread

    def work(self) -> None:
        while True:
            with self.lock:
                if not self.waiting and not any(self.rows):
                    self.thread = None
                    return
            try:
                self.end_stopped()
                self.admit()
                self.read()
                self.write()
            except Exception as error:  # whoever waits must learn of it
                self.fail(error)

    def end_stopped(self) -> None:
        is_last = not main_thread().is_alive()  # the program ends: nobody reads on
        with self.lock:
            rows = [*self.waiting, *filter(None, self.rows)]
        for row in (row for row in rows if is_last or row.stop.is_set()):
            row.reply.end("stopped")
            self.finish(row)

    def admit(self) -> None:
        """Give slots to waiting requests."""
        while row := self.next_waiting():
            self.place(row)
            self.reading.append(row)
            with self.lock:
                self.waiting.remove(row)
                self.rows[row.slot] = row

    def next_waiting(self) -> Row | None:
        """Return the request that gets a slot now; None if none may."""
        if all(self.rows):
            return None
        held = self.held()
        with self.lock:
            row = min(self.waiting, key=lambda row: held[row.asker], default=None)
        # Of two slots, one that is kept free would cost a single asker half of the speed.
        is_last = row and row.asker and held[row.asker] == len(self.rows) - 1 > 1
        return None if is_last else row

    def held(self) -> Counter[str]:
        """Return how many slots each asker has."""
        return Counter(row.asker for row in self.rows if row)

    def place(self, row: Row) -> None:
        """Give a row the slot that has read the beginning of its prompt, or one with a copy."""
        slots, ids = self.slots, row.unread
        # The last token is always read, because its logits are needed, and one more with it: alone
        # it would be read by another kernel, whose sums are rounded otherwise. Scores need all.
        most = 0 if row.reply.request.is_scored else max(len(ids) - 2, 0)
        shared = np.minimum(slots.shared(ids), most)
        is_free = np.array([other is None for other in self.rows])
        best = int((2 * shared + is_free).argmax())  # a free one wins a tie
        n_shared, slot = int(shared[best]), best
        # A slot that shares less than half of its ids with the prompt belongs to another
        # conversation (with the same system prompt, perhaps), which still needs it.
        if not is_free[best] or 2 * n_shared < slots.lengths[best]:
            slot = int(np.where(is_free, self.used, np.inf).argmin())  # idle for longest
        if slot != best and n_shared >= MIN_COPIED:
            slots.copy(best, slot, n_shared)
        elif slot != best:
            n_shared = 0
        slots.cut(slot, n_shared)
        row.slot, row.unread = slot, ids[n_shared:]

    def read(self) -> None:
        """Read full texts again, then prompts, first those of the askers with the fewest slots.

        It takes no longer than the replies being written can wait.
        """
        held = self.held()
        n_left = min(READ_BESIDE, self.n_at_once) if self.n_writing else self.n_at_once
        while self.reading and n_left > 0:
            row = min(self.reading, key=lambda row: (row.reply.n_new == 0, held[row.asker]))
            self.share(row)
            # No last token is left alone; see place.
            n = n_left + (len(row.unread) == n_left + 1)
            part, row.unread = row.unread[:n], row.unread[n:]
            n_left -= n
            is_scored = row.reply.request.is_scored
            began = time.monotonic()
            logits = self.slots.read(row.slot, part, first=0 if is_scored else -1)
            if is_scored:
                row.reply.score_prompt(part, logits)
            self.pace(len(part), time.monotonic() - began)
            if not row.unread:
                self.reading.remove(row)
                self.begin(row, logits[-1:])

    def share(self, row: Row) -> None:
        """Copy what another slot has read of a prompt since its row was placed.

        Several replies to one prompt, or a crowd with one system prompt, are placed at once.
        """
        request, n_own = row.reply.request, int(self.slots.lengths[row.slot])
        if request.is_scored or row.reply.n_new:
            return
        ids = [*request.ids, *request.begun]
        shared = np.minimum(self.slots.shared(ids), len(ids) - 2)
        best = int(shared.argmax())
        n_shared = int(shared[best])
        if n_shared - n_own >= MIN_COPIED:
            self.slots.copy(best, row.slot, n_shared)
            row.unread = ids[n_shared:]

    def pace(self, n: int, seconds: float) -> None:
        """Choose the length of the next part of a prompt, after one of n tokens.

        It is a power of two, so that a prompt is nearly always read in the same parts.
        """
        if n >= READ_LEAST:
            fitting = np.clip(n * READ_SECONDS / max(seconds, 1e-9), READ_LEAST, READ_ALONE)
            self.n_at_once = 2 ** int(np.log2(fitting))

    def begin(self, row: Row, logits: np.ndarray) -> None:
        """Start a reply whose prompt has been read; logits (1, V) choose its first token."""
        self.swap(row.slot, self.n_writing)
        self.n_writing += 1
        if row.reply.n_most:
            self.add_tokens([row], logits)
        else:
            row.reply.end("length")
            self.finish(row)

    def write(self) -> None:
        """Write one token of every reply that is being written."""
        if rows := [row for row in self.rows[: self.n_writing] if row]:
            self.add_tokens(rows, self.slots.step([row.unread[0] for row in rows]))

    def add_tokens(self, rows: list[Row], logits: np.ndarray) -> None:
        """Choose the next token of each row from logits (n, V), and deliver what is due."""
        allowed, failed = restricted(rows, logits)
        for i, error in failed.items():
            self.release(rows[i])
            send(rows[i], error)
        now = time.monotonic()
        wanted = [i for i in range(len(rows)) if i not in failed]
        for i, token_id in choose(rows, allowed, wanted):
            row, reply = rows[i], rows[i].reply
            reply.add(token_id, logits[i])
            if reply.finish:
                self.finish(row)
                continue
            row.unread = [token_id]
            if now - row.delivered > PIECE_SECONDS:
                row.delivered = now
                send(row, reply.take())
            if self.slots.lengths[row.slot] == self.slots.block_size:
                self.read_again(row)

    def read_again(self, row: Row) -> None:
        """Queue the later half of a text that has filled its context, to be read again."""
        self.stop_writing(row)
        self.slots.cut(row.slot, 0)
        row.unread = row.reply.slid()
        self.reading.append(row)

    def finish(self, row: Row) -> None:
        piece = row.reply.take()  # before the release: what it raises must reach the row, too
        self.replies.remember(row.reply)
        self.n_finished += 1
        self.n_new += row.reply.n_new
        self.release(row)
        send(row, piece)

    def release(self, row: Row) -> None:
        """Let the slot of a row rest, if it has one already."""
        if row.slot < 0:
            with self.lock:
                self.waiting.remove(row)
            return
        self.reading.remove(row) if row in self.reading else self.stop_writing(row)
        self.rows[row.slot] = None
        self.used[row.slot] = time.monotonic()

    def stop_writing(self, row: Row) -> None:
        """Move a row behind the slots of the other replies that are being written."""
        self.n_writing -= 1
        self.swap(row.slot, self.n_writing)

    def swap(self, a: int, b: int) -> None:
        """Exchange two slots with their rows."""
        self.slots.swap(a, b)
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
        self.used[[a, b]] = self.used[[b, a]]
        for slot in (a, b):
            if row := self.rows[slot]:
                row.slot = slot

    def fail(self, error: Exception) -> None:
        """Deliver an error to everybody, and begin anew."""
        with self.lock:
            rows = [*filter(None, self.rows), *self.waiting]
            self.waiting.clear()
        self.reading.clear()
        self.rows, self.n_writing = [None] * len(self.rows), 0
        for slot in range(len(self.rows)):
            self.slots.cut(slot, 0)
        for row in rows:
            send(row, error)
