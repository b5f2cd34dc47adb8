package logs

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func kept(text string) *Log {
	l := New()
	l.Keep(io.NopCloser(strings.NewReader(text)))
	l.Close()
	return l
}

func TestRead(t *testing.T) {
	l := kept("one\ntwo\nthree")
	for _, test := range []struct {
		o    Options
		want string
	}{{Options{Tail: -1}, "one\ntwo\nthree"}, {Options{Tail: 2}, "two\nthree"}, {Options{Tail: 0}, ""}, {Options{Tail: 9}, "one\ntwo\nthree"}, {Options{Tail: -1, Limit: 5}, "one\nt"},
		{Options{Tail: -1, Since: time.Now().Add(time.Hour)}, ""}, {Options{Tail: -1, Follow: true}, "one\ntwo\nthree"}} {
		var b bytes.Buffer
		if err := l.Read(t.Context(), &b, test.o, func() {}); err != nil || b.String() != test.want {
			t.Errorf("%+v: %q %v, want %q", test.o, b.String(), err, test.want)
		}
	}
	var b bytes.Buffer
	if err := l.Read(t.Context(), &b, Options{Tail: 1, Timestamps: true}, func() {}); err != nil {
		t.Fatal(err)
	}
	if at, rest, ok := strings.Cut(b.String(), " "); !ok || rest != "three" {
		t.Errorf("with timestamps: %q", b.String())
	} else if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		t.Error(err)
	}
}

// A reader with Follow receives each line as it is printed, and ends with the log.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := New(), &bytes.Buffer{}
		r, in := io.Pipe()
		l.Keep(r)
		done := make(chan error)
		go func() { done <- l.Read(context.Background(), w, Options{Tail: -1, Follow: true}, func() {}) }()
		for _, want := range []string{"a\n", "a\nb\n"} {
			if _, err := io.WriteString(in, want[len(want)-2:]); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); w.String() != want {
				t.Errorf("followed %q, want %q", w.String(), want)
			}
		}
		_ = in.Close()
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The stored output of a container is limited; the newest part is kept.
func TestBound(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	l := kept(strings.Repeat(line, 2*bound/len(line)) + "end\n")
	var b bytes.Buffer
	if err := l.Read(t.Context(), &b, Options{Tail: -1}, func() {}); err != nil {
		t.Fatal(err)
	}
	if b.Len() > bound || !strings.HasSuffix(b.String(), "x\nend\n") {
		t.Errorf("%d bytes are kept", b.Len())
	}
}
