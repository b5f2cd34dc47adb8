package collect

import (
	"bytes"
	"sync"
)

// maxLines is the length of the log lines that are remembered, in bytes.
const maxLines = 1 << 20

// Lines remembers the last lines of a log. It is a writer for any goroutine; the zero Lines is empty.
type Lines struct {
	mu   sync.Mutex // a leaf
	last []byte
}

// Write implements io.Writer. It never fails.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, line...)
	if over := len(l.last) - maxLines; over > maxLines/4 { // moved seldom
		rest := l.last[over:]
		l.last = append(l.last[:0], rest[bytes.IndexByte(rest, '\n')+1:]...)
	}
	return len(line), nil
}

// Text returns the remembered lines, oldest first. The oldest is a whole one.
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
