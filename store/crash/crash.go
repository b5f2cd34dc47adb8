// Package crash turns a panic into the end of one piece of work instead of the process: it is counted, and logged with its
// stack once for each place in the code.
//
// What Go cannot recover from still ends the process: concurrent writes to a map, no memory.
//
// Owns: the places that it has logged.  Reads: nothing of ours but store/obs.  Never: says to a client what was wrong.
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

// Work is what a panic ended: the label of navarch_panics_total.
type Work string

// The pieces of work.
const (
	RPC       Work = "rpc"       // one call or stream of a client
	Plan      Work = "plan"      // a plan of configuration, or one proxy's view
	Normalise Work = "normalise" // what the leader makes of one object, or its look at how objects fit together
	Admission Work = "admission" // one review of an object that is to be written to Kubernetes
)

// ErrPanic is in the error that a panic became.
var ErrPanic = errors.New("panic")

// maxText bounds what is kept of what a panic says, in bytes: it may quote configuration.
const maxText = 512

// Log counts and logs panics. Safe for concurrent use.
type Log struct {
	log   *slog.Logger
	again *obs.Sampled

	mu   sync.Mutex // a leaf
	seen map[string]bool
}

// New writes to log; nil: slog's default.
func New(log *slog.Logger) *Log {
	if log == nil {
		log = slog.Default()
	}
	return &Log{log: log, again: obs.NewSampled(log), seen: map[string]bool{}}
}

// Caught takes what recover has returned, which must not be nil, in the deferred function that has called it. args are keys and
// values for the log line. The error wraps ErrPanic and says what the panic said, cut, and where it was; it is not for clients.
func (l *Log) Caught(work Work, fault any, args ...any) error {
	obs.Panics.WithLabelValues(string(work)).Inc()
	text, place := fmt.Sprint(fault), place()
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	l.mu.Lock()
	first := !l.seen[place]
	l.seen[place] = true // as many as there are lines of code that panic
	l.mu.Unlock()
	args = append(args, obs.KeyError, text, obs.KeyPlace, place)
	if first {
		l.log.Error("panic: "+string(work)+" ended, the process goes on", append(args, obs.KeyStack, string(debug.Stack()))...)
	} else {
		l.again.Warn("panic again, at a place that was logged with its stack: "+string(work)+" ended, the process goes on", place, args...)
	}
	return fmt.Errorf("%w: %s at %s", ErrPanic, text, place)
}

// place is the file and line that panicked: the first frame below the runtime's own.
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

// Ended is all that a client is told of a panic, with the gRPC code Internal.
var Ended = status.Error(codes.Internal, "internal error: this call was ended; the server's log says why")

// Guard runs f; where it panics, the error is a gRPC status for the client, and args are in the log.
func (l *Log) Guard(f func() error, args ...any) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			_ = l.Caught(RPC, fault, args...) // counted and logged; the client is not told
			err = Ended
		}
	}()
	return f()
}

// Unary is an interceptor by which a panic ends its call alone, with Internal. Other errors are those of the handler.
func (l *Log) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	err = l.Guard(func() error {
		answer, err = handle(ctx, request)
		return err
	}, obs.KeyName, info.FullMethod)
	return answer, err
}

// Stream is the same for streams. Other errors are those of the handler.
func (l *Log) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return l.Guard(func() error { return handle(server, stream) }, obs.KeyName, info.FullMethod)
}
