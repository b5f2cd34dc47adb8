package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTotals(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	for _, row := range []string{
		`{"Action":"run","Package":"a","Test":"T"}`,
		`{"Action":"run","Package":"a","Test":"T/one"}`,
		`{"Action":"pass","Package":"a","Test":"T/one"}`,
		`{"Action":"pass","Package":"a","Test":"T"}`,
		`{"Action":"output","Package":"a","Test":"S","Output":"=== RUN   S\n"}`,
		`{"Action":"output","Package":"a","Test":"S","Output":"    x_test.go:3: not root\n"}`,
		`{"Action":"skip","Package":"a","Test":"S"}`,
		`{"Action":"pass","Package":"a","Elapsed":1.5}`,
		`{"Action":"output","Package":"b","Test":"F","Output":"boom\n"}`,
		`{"Action":"fail","Package":"b","Test":"F"}`,
		`{"Action":"output","Package":"b","Test":"Hung","Output":"goroutine 7\n"}`,
		`{"Action":"fail","Package":"b"}`,
		`{"ImportPath":"c","Action":"build-output","Output":"c.go:1: undefined: x\n"}`,
		`{"Action":"fail","Package":"c"}`,
		`{"Action":"skip","Package":"d"}`,
		`words of a tool`,
	} {
		r.row([]byte(row + "\n"))
	}
	if r.summary(time.Second) {
		t.Error("failures were taken for success")
	}
	for _, want := range []string{"boom", "goroutine 7", "undefined: x", "words of a tool", "skipped: a S: not root",
		"packages: 1 ok, 2 failed, 1 without tests", "tests:    1 passed, 1 failed, 1 skipped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in:\n%s", want, &out)
		}
	}
}

func TestSizes(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	r.sizes = true
	for _, row := range []string{
		`{"Action":"output","Package":"a","Test":"T","Output":"    x_test.go:3: size: 7 proxies\n"}`,
		`{"Action":"output","Package":"a","Test":"T","Output":"    x_test.go:3: something else\n"}`,
		`{"Action":"output","Package":"a","Test":"T","Output":"    y_test.go:31: size: drained in 2 s\n"}`,
		`{"Action":"pass","Package":"a","Test":"T","Elapsed":1.5}`,
	} {
		r.row([]byte(row + "\n"))
	}
	if want := "ok    T" + strings.Repeat(" ", 35) + "    1.5s  7 proxies, drained in 2 s\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}

func TestNothingIsNoSuccess(t *testing.T) {
	var out bytes.Buffer
	if newReport(&out).summary(0) {
		t.Error("an empty stream was taken for success")
	}
}
