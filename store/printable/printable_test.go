package printable

import (
	"bytes"
	"fmt"
	"testing"
)

func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"plain \"text\" \\ of\n\ttwo\n": "plain \"text\" \\ of\n\ttwo\n",
		"a\x1b[31mb\nc\td":              `a\x1b[31mb` + "\nc\td",
		"\a\t\r\n\u202e":                `\a` + "\t" + `\r` + "\n" + `\u202e`,
		"8 bits \x9b1m\n":               `8 bits \x9b1m` + "\n",
		"C1 \u009b1m \"\\":              `C1 \u009b1m "\\`,
	} {
		if got := Lines(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := Line("a\n\tb"); got != `a\n\tb` {
		t.Errorf("on one line: %q", got)
	}
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	if n, err := fmt.Fprint(Writer(&b), "a\x1b\n"); n != 3 || err != nil || b.String() != `a\x1b`+"\n" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}
