package web

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Recorder is an http.ResponseWriter that stores the response in memory. NewRecorder creates it. It is not safe for
// concurrent use.
type Recorder struct {
	Code int // HTTP status; of several calls of WriteHeader the last one counts
	Body bytes.Buffer

	header http.Header
}

// NewRecorder returns an empty Recorder with status 200.
func NewRecorder() *Recorder { return &Recorder{Code: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(code int) { r.Code = code }

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) { return r.Body.Write(b) }

// Local is a transport that passes requests to a handler of this process, with a loopback RemoteAddr (SameMachine).
type Local struct{ Handler http.Handler }

// RoundTrip returns the complete response of the handler, which it calls with a copy of r. It blocks until the handler
// returns, and then closes the body of r. The error is always nil.
func (l Local) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RemoteAddr, in.RequestURI = "127.0.0.1:1", r.URL.RequestURI()
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	answer := NewRecorder()
	l.Handler.ServeHTTP(answer, in)
	return &http.Response{Status: fmt.Sprintf("%d %s", answer.Code, http.StatusText(answer.Code)), StatusCode: answer.Code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.Body), ContentLength: int64(answer.Body.Len()), Request: r}, nil
}
