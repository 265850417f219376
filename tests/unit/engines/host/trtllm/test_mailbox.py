import select
import threading

from onegate.engines.host.trtllm.mailbox import Mailbox


def readable(mailbox):
    return bool(select.select([mailbox.fd], [], [], 0)[0])


def test_the_descriptor_is_readable_while_there_is_something():
    mailbox = Mailbox()
    assert not mailbox
    assert not readable(mailbox)
    assert mailbox.take() == []
    mailbox.post(1)
    mailbox.post(2, 3)
    assert mailbox
    assert readable(mailbox)
    assert mailbox.take() == [1, 2, 3]
    assert not mailbox
    assert not readable(mailbox)


def test_nothing_is_lost_between_threads():
    mailbox = Mailbox()

    def post(first):
        for n in range(1000):
            mailbox.post((first, n))

    threads = [threading.Thread(target=post, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    taken = []
    while len(taken) < 4000:
        select.select([mailbox.fd], [], [], 10)
        taken += mailbox.take()
    for thread in threads:
        thread.join()
    for first in range(4):
        assert [n for f, n in taken if f == first] == list(range(1000))
