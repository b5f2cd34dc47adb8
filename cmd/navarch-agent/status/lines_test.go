package status

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCopyLines(t *testing.T) {
	for name, c := range map[string]struct {
		in   io.Reader
		open bool
		want string
		err  string
	}{
		"whole":                 {in: strings.NewReader("a 1\nb 2\n"), want: "a 1\nb 2\n"},
		"no newline at the end": {in: strings.NewReader("a 1\nb 2"), want: "a 1\nb 2\n"},
		"nothing":               {in: strings.NewReader("")},
		"cut off":               {in: io.MultiReader(strings.NewReader("a 1\nb "), iotest.ErrReader(errors.New("reset"))), want: "a 1\n", err: "reset"},
		"end of OpenMetrics":    {in: strings.NewReader("a 1\n# EOF\nb 2\n"), open: true, want: "a 1\n"},
		"end without newline":   {in: strings.NewReader("a 1\n# EOF"), open: true, want: "a 1\n"},
		"only the end":          {in: strings.NewReader("# EOF\n"), open: true},
		"end inside of a line":  {in: strings.NewReader("# HELP a b# EOF\na 1\n# EOF\n"), open: true, want: "# HELP a b# EOF\na 1\n"},
		"comment in plain text": {in: strings.NewReader("# EOF\na 1\n"), want: "# EOF\na 1\n"},
		"too large":             {in: strings.NewReader(strings.Repeat("a 1\n", 300)), err: "larger than 1000 bytes"},
		"line too long":         {in: strings.NewReader(strings.Repeat("x", 2*maxLine)), err: "longer"},
	} {
		limit := int64(1000)
		if strings.Contains(c.err, "longer") {
			limit = maxPage
		}
		for _, in := range []io.Reader{c.in, nil} {
			if in == nil {
				if s, ok := c.in.(*strings.Reader); ok {
					s.Seek(0, io.SeekStart)
					in = iotest.OneByteReader(s)
				} else {
					continue
				}
			}
			var out bytes.Buffer
			err := copyLines(&out, in, limit, c.open)
			if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			if c.err == "" && out.String() != c.want || c.err == "reset" && out.String() != c.want {
				t.Errorf("%s: %q, want %q", name, out.String(), c.want)
			}
		}
	}
}

// The output consists of lines of the input, in their order, without anything after the end of OpenMetrics.
func FuzzCopyLines(f *testing.F) {
	f.Add([]byte("a 1\n# EOF\nb"), true)
	f.Add([]byte("a 1\nb"), false)
	f.Fuzz(func(t *testing.T, in []byte, open bool) {
		var out, slow bytes.Buffer
		err := copyLines(&out, bytes.NewReader(in), 4096, open)
		slowErr := copyLines(&slow, iotest.OneByteReader(bytes.NewReader(in)), 4096, open)
		if (err == nil) != (slowErr == nil) || err == nil && !bytes.Equal(out.Bytes(), slow.Bytes()) {
			t.Fatalf("%q at once (%v), %q byte by byte (%v)", out.Bytes(), err, slow.Bytes(), slowErr)
		}
		got := out.Bytes()
		if len(got) > 0 && got[len(got)-1] != '\n' || !bytes.HasPrefix(append(bytes.Clone(in), '\n'), got) {
			t.Fatalf("%q of %q", got, in)
		}
		if open && bytes.Contains(append([]byte("\n"), got...), []byte("\n# EOF\n")) {
			t.Fatalf("the end is in %q", got)
		}
	})
}
