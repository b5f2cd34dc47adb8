package status

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	maxPage = 64 << 20 // bytes of one page
	maxLine = 64 << 10 // bytes of one line, with its newline
)

var (
	endLine  = []byte("# EOF\n") // the last line of an OpenMetrics page
	errWrite = errors.New("the scraper is gone")

	buffers = sync.Pool{New: func() any { b := make([]byte, maxLine); return &b }}
)

// copyLines copies whole lines from src to dst, so that after a failed read dst still ends with a whole line. A missing
// newline at the end of src is added. If open is true, the page is in the OpenMetrics format, and copying stops before
// the line "# EOF". copyLines returns an error for a page of more than limit bytes, a line of more than maxLine bytes,
// a failed read, or a failed write. The error of a failed write wraps errWrite.
func copyLines(dst io.Writer, src io.Reader, limit int64, open bool) error {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf, have, seen := *pooled, 0, 0
	src = io.LimitReader(src, limit+1)
	for total := int64(0); ; {
		n, err := src.Read(buf[have:])
		have, total = have+n, total+int64(n)
		if total > limit {
			return fmt.Errorf("the page is larger than %d bytes", limit)
		}
		if err == io.EOF && have > 0 && buf[have-1] != '\n' {
			if have == len(buf) {
				return fmt.Errorf("a line is longer than %d bytes", len(buf)-1)
			}
			buf[have] = '\n'
			have++
		}
		whole := bytes.LastIndexByte(buf[seen:have], '\n') + 1 // the bytes before seen contain no newline
		if whole > 0 {
			whole += seen
		}
		ready, ended := buf[:whole], false
		if open {
			ready, ended = beforeEnd(ready)
		}
		if len(ready) > 0 {
			if _, werr := dst.Write(ready); werr != nil {
				return fmt.Errorf("%w: %w", errWrite, werr)
			}
		}
		switch {
		case ended || err == io.EOF:
			return nil
		case err != nil:
			return err
		case whole == 0 && have == len(buf):
			return fmt.Errorf("a line is longer than %d bytes", len(buf)-1)
		}
		have = copy(buf, buf[whole:have])
		seen = have
	}
}

// beforeEnd returns the lines before the line "# EOF", and whether that line is present.
func beforeEnd(lines []byte) ([]byte, bool) {
	for at := 0; ; {
		i := bytes.Index(lines[at:], endLine)
		switch {
		case i < 0:
			return lines, false
		case at+i == 0 || lines[at+i-1] == '\n':
			return lines[:at+i], true
		}
		at += i + 1
	}
}
