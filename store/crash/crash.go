// Package crash handles recovered panics, so that a panic ends one piece of work instead of the process. It counts each
// panic. The first panic at each place in the code is logged with the stack.
//
// Fatal errors of Go, such as concurrent writes to a map or lack of memory, still end the process.
//
// Owns: the set of places whose panics were logged.
// Reads: store/obs.
// Never: describes the fault to a client.
package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/obs"
)

// Work is the kind of work that a panic ended. It is the label of the metric navarch_panics_total.
type Work string

// The kinds of work.
const (
	RPC       Work = "rpc"       // one call or stream of a client
	Plan      Work = "plan"      // the computation of configuration, of a part of its input, or of one proxy's part
	Normalise Work = "normalise" // the leader's normalisation or analysis of objects
	Admission Work = "admission" // one review of an object before it is written to Kubernetes
)

// ErrPanic is wrapped by each error of Log.Caught.
var ErrPanic = errors.New("panic")

// maxText bounds the stored text of a panic in bytes, because it may quote configuration.
const maxText = 512

// Log counts and logs panics. It is safe for concurrent use.
type Log struct {
	log   *slog.Logger
	again *obs.Sampled

	mu   sync.Mutex      // leaf mutex; guards seen
	seen map[string]bool // places that were logged with their stack
}

// New returns a Log that writes to log. If log is nil, it writes to slog's default.
func New(log *slog.Logger) *Log {
	if log == nil {
		log = slog.Default()
	}
	return &Log{log: log, again: obs.NewSampled(log), seen: map[string]bool{}}
}

// Caught counts and logs a panic. Call it in the deferred function that calls recover, with recover's result as fault,
// which must not be nil. The parameter args has keys and values for the log line, as for slog. Repeated panics at one
// place are logged without the stack, and not all of them. The result is never nil. It wraps ErrPanic, and contains the
// panic's place and the first 512 bytes of its text, so it is not for clients.
func (l *Log) Caught(work Work, fault any, args ...any) error {
	obs.Panics.WithLabelValues(string(work)).Inc()
	text, place := fmt.Sprint(fault), place()
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	l.mu.Lock()
	first := !l.seen[place]
	l.seen[place] = true // bounded by the number of lines of code that panic
	l.mu.Unlock()
	args = append(args, obs.KeyError, text, obs.KeyPlace, place)
	if first {
		l.log.Error("panic: "+string(work)+" ended, the process goes on", append(args, obs.KeyStack, string(debug.Stack()))...)
	} else {
		l.again.Warn("panic again, at a place with a stack in the log: "+string(work)+" ended, the process goes on", place, args...)
	}
	return fmt.Errorf("%w: %s at %s", ErrPanic, text, place)
}

// place returns the function and line of the panic. They are in the innermost frame outside of Go's runtime. "unknown"
// means that the innermost 64 frames do not contain the place.
func place() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// Ended is the gRPC status, with code Internal, that clients receive after a panic.
var Ended = status.Error(codes.Internal, "internal error: this call was ended; the server's log says why")

// Guard runs f, and returns its error. If f panics, Guard counts and logs the panic as RPC with args, and returns
// Ended.
func (l *Log) Guard(f func() error, args ...any) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			_ = l.Caught(RPC, fault, args...) // counted and logged; the client gets no details
			err = Ended
		}
	}()
	return f()
}

// Unary is a gRPC interceptor (grpc.UnaryServerInterceptor). A panic ends only its call, with Ended. Other errors are
// the handler's.
func (l *Log) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	err = l.Guard(func() error {
		answer, err = handle(ctx, request)
		return err
	}, obs.KeyName, info.FullMethod)
	return answer, err
}

// Stream is a gRPC interceptor (grpc.StreamServerInterceptor). A panic ends only its stream, with Ended. Other errors
// are the handler's.
func (l *Log) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return l.Guard(func() error { return handle(server, stream) }, obs.KeyName, info.FullMethod)
}
