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
	Code int          // HTTP status; of several calls of WriteHeader the last one counts
	Body bytes.Buffer // all bytes of the calls of Write

	header http.Header
}

// NewRecorder returns a Recorder with status 200, without headers and body.
func NewRecorder() *Recorder { return &Recorder{Code: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter. It returns the response's own headers, which may be changed at any time.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. It sets Code, even after Write.
func (r *Recorder) WriteHeader(code int) { r.Code = code }

// Write implements http.ResponseWriter. It appends b to Body and never fails.
func (r *Recorder) Write(b []byte) (int, error) { return r.Body.Write(b) }

// Local is an http.RoundTripper that passes requests to a handler of this process. The handler sees a loopback address
// as RemoteAddr, as SameMachine requires. Handler must not be nil.
type Local struct{ Handler http.Handler }

// RoundTrip calls the handler with a copy of r, and returns the complete response. RoundTrip blocks until the handler
// returns, even if the context of r ends earlier. It closes the body of r before it returns. The error is always nil.
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
