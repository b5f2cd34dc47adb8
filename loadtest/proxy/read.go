package proxy

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// Read implements io.Reader. While no data is available it blocks and runs functions that were posted to the proxy. The
// caller contains the proxy's mutex, which is released while it blocks.
func (c *session) Read(b []byte) (int, error) {
	if len(c.buf) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

// fill makes data available: the plaintext of a complete record, or data from the socket.
func (c *session) fill() error {
	for {
		plain, err := c.opened()
		if len(plain) > 0 || err != nil {
			c.buf = plain
			c.sim.fleet.count.socketIn.Add(uint64(len(plain)))
			return err
		}
		if err := c.receive(); err != nil {
			return err
		}
	}
}

// opened returns the plaintext that has arrived.
func (c *session) opened() (plain []byte, err error) {
	if c.records == nil {
		plain, c.raw = c.raw, nil
		return plain, nil
	}
	plain, c.raw, err = c.records.read(c.raw)
	return plain, err
}

// receive reads from the socket and appends to the raw bytes.
func (c *session) receive() error {
	if err := c.flush(); err != nil {
		return err
	}
	into := c.room()
	for {
		if err := c.sim.work(); err != nil {
			return err
		}
		if err := c.flush(); err != nil { // frames that work wrote
			return err
		}
		if c.sim.moves() {
			return errMoves
		}
		limit := c.sim.allowance(len(into) - len(c.raw))
		if limit == 0 {
			c.sim.pause()
			continue
		}
		at := len(c.raw)
		var large []byte
		whole := at == 0 && c.large == nil && limit == len(into) && c.socket != nil
		n, err := c.sim.block(func() (n int, err error) {
			if whole {
				large, n, err = takeWhole(c.socket)
				return n, err
			}
			return c.conn.Read(into[at : at+limit])
		})
		if large != nil {
			c.large, into = large, large
		}
		if n > 0 {
			c.sim.consumed(n)
			c.arrived = time.Now()
			c.raw, c.more = into[:at+n], at+n == len(into)
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// takeWhole reads a record with one call, into a buffer that is allocated once data is available. An idle proxy waits
// with the small buffer, which is too small for most answers. Without data it allocates nothing.
func takeWhole(socket syscall.RawConn) (into []byte, n int, err error) {
	wait := socket.Read(func(fd uintptr) bool {
		into = takeRead(oneRecord)
		for n, err = syscall.Read(int(fd), into); err == syscall.EINTR; {
			n, err = syscall.Read(int(fd), into)
		}
		if n > 0 {
			return true
		}
		giveRead(into)
		into = nil
		return err != syscall.EAGAIN
	})
	switch {
	case wait != nil:
		return nil, 0, wait
	case n > 0:
		return into, n, nil
	case err != nil:
		return nil, 0, os.NewSyscallError("read", err)
	}
	return nil, 0, io.EOF
}

// held returns the present buffer: the large or the small one.
func (c *session) held() []byte {
	if c.large != nil {
		return c.large
	}
	return c.small[:]
}

// room returns the buffer for the next read, which begins with the raw bytes. It is a large one while there is much to
// read, one for a record that has begun to arrive, or the small one.
func (c *session) room() []byte {
	size := 0
	switch {
	case c.more:
		size = readSize
	case recordSize(c.raw) > len(c.small):
		size = oneRecord
	}
	into, old := c.large, c.large
	if size != len(old) {
		into = takeRead(size)
	}
	c.large = into
	into = c.held()
	c.raw = into[:copy(into, c.raw)]
	if size != len(old) {
		giveRead(old)
	}
	return into
}
