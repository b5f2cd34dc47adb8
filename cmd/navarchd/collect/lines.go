package collect

import (
	"bytes"
	"sync"
)

// maxLines is the number of bytes of the log that Lines remembers.
const maxLines = 1 << 20

// Lines is an io.Writer that remembers the last MiB of a log. The zero value is ready for use. Safe for concurrent use.
type Lines struct {
	mu   sync.Mutex // no other lock is taken under it
	last []byte
}

// Write implements io.Writer. Each call should write whole lines. Write never fails, and does not retain its argument.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, line...)
	if over := len(l.last) - maxLines; over > maxLines/4 { // moves bytes only after every 256 KiB
		rest := l.last[over:]
		l.last = append(l.last[:0], rest[bytes.IndexByte(rest, '\n')+1:]...)
	}
	return len(line), nil
}

// Text returns the remembered lines, oldest first, without a truncated line at the beginning. The result is empty if
// nothing was written, or if the last line is longer than a MiB. The caller owns the result.
func (l *Lines) Text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.Clone(l.last)
	if over := len(text) - maxLines; over > 0 {
		text = text[over:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return text
}
