package obs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Sampled writes warnings that clients can cause, at a bounded rate. A cause is a pair of a message and a text. The
// first line of a cause is written immediately. After each written line an interval of SampleInterval begins. Lines
// within the interval are held back. At its end the first of these lines is written, with the number of the others
// (keySuppressed), which are dropped. So the written and the dropped lines add up to the number of events.
//
// Lines of one cause do not suppress lines of another cause. After the first 64 causes, all further causes count as a
// single cause, whose lines have a message of their own. A Sampled is safe for concurrent use.
type Sampled struct {
	log *slog.Logger

	mu     sync.Mutex // guards causes; no other lock is acquired while it is held
	causes map[sampledCause]*sample
}

// SampleInterval is the least time between two written lines of one cause.
const SampleInterval = 30 * time.Second

// maxSampled bounds the causes that are distinguished. All further causes count as a single cause.
const maxSampled = 64

// maxSampledText is the largest number of written bytes of one text. Clients choose the texts, so a bound is needed.
const maxSampledText = 512

// sampledCause identifies a cause.
type sampledCause struct{ message, cause string }

// sample contains the events of one cause that wait for the end of the interval.
type sample struct {
	args  []any // arguments of the first event of the interval; nil: no event yet
	count int
}

// NewSampled returns a Sampled that writes to log, which must not be nil.
func NewSampled(log *slog.Logger) *Sampled {
	return &Sampled{log: log, causes: map[sampledCause]*sample{}}
}

// Warn writes or counts a line. The arguments message and cause must be constants, or values of a set that clients
// cannot enlarge. Texts of clients belong in args, which are keys and values in the form of slog. Errors and texts in
// args are cut to 512 bytes. An empty cause is not written.
func (s *Sampled) Warn(message, cause string, args ...any) {
	key := sampledCause{message, cause}
	s.mu.Lock()
	waiting := s.causes[key]
	if waiting == nil && len(s.causes) >= maxSampled {
		key = sampledCause{message: "more log lines of other causes"}
		waiting = s.causes[key]
	}
	if waiting == nil {
		s.causes[key] = &sample{}
		time.AfterFunc(SampleInterval, func() { s.flush(key) })
		s.mu.Unlock()
		s.write(key, cut(args), 0)
		return
	}
	if waiting.count++; waiting.args == nil {
		waiting.args = cut(args)
	}
	s.mu.Unlock()
}

// flush ends an interval. A cause without events is forgotten, so that its next line is written immediately.
func (s *Sampled) flush(key sampledCause) {
	s.mu.Lock()
	waiting := *s.causes[key]
	if waiting.count == 0 {
		delete(s.causes, key)
		s.mu.Unlock()
		return
	}
	*s.causes[key] = sample{}
	time.AfterFunc(SampleInterval, func() { s.flush(key) })
	s.mu.Unlock()
	s.write(key, waiting.args, waiting.count-1)
}

// write writes one line of a cause.
func (s *Sampled) write(key sampledCause, args []any, suppressed int) {
	if key.cause != "" {
		args = append(args, keyCause, key.cause)
	}
	if suppressed > 0 {
		args = append(args, keySuppressed, suppressed)
	}
	s.log.Log(context.Background(), slog.LevelWarn, key.message, args...)
}

// cut copies the arguments of a line. It turns errors into texts, and copies at most maxSampledText bytes of each text.
func cut(args []any) []any {
	out := make([]any, len(args), len(args)+4)
	for i, arg := range args {
		if err, is := arg.(error); is {
			arg = err.Error()
		}
		if text, is := arg.(string); is {
			arg = strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxSampledText)]), "")
		}
		out[i] = arg
	}
	return out
}
