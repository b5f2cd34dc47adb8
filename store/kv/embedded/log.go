package embedded

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo returns a logger for etcd. The logger forwards etcd's errors, and etcd's warnings about the disk, space, damage
// or a lost leader. Other warnings become level debug, and lower levels are dropped. Once stopping is set, errors
// become level debug too, because etcd reports the end of its own listeners as errors. Panics and fatal errors always
// stay errors, and are never left out. Any other message above level debug is logged at most once in repeatAfter. If
// equal messages were left out since then, the attribute "repeated" has their number.
func zapTo(log *slog.Logger, stopping *atomic.Bool) *zap.Logger {
	return zap.New(slogCore{log: log.With(slog.String("from", "etcd")), stopping: stopping,
		seen: &repeats{at: map[string]logged{}, now: time.Now}})
}

// trouble matches warnings of etcd that keep the level warning.
var trouble = regexp.MustCompile(`(?i)fdatasync|slow disk|corrupt|\bhash\b|alarm|no space|space exceeded|quota|(lost|no) leader|\bWAL\b`)

// repeatAfter is the least time between two logs of one message.
const repeatAfter = 10 * time.Second

type slogCore struct {
	log      *slog.Logger
	stopping *atomic.Bool
	seen     *repeats
}

// Enabled implements zapcore.Core: messages below level warning are dropped.
func (c slogCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core: it returns a core that adds the fields to each message.
func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	c.log = c.log.With(attrs(fields)...)
	return c
}

// Check implements zapcore.Core: it adds the core to the check of an enabled message.
func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core: it writes the message to slog.
func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	all := attrs(fields)
	level := c.level(e)
	if tooEarly(e, fields) {
		level = slog.LevelDebug
	}
	if level > slog.LevelDebug && e.Level <= zapcore.ErrorLevel { // higher levels end the process
		left, again := c.seen.again(e.Message)
		if !again {
			return nil
		}
		if left > 0 {
			all = append(all, slog.Int("repeated", left))
		}
	}
	c.log.Log(context.Background(), level, e.Message, all...)
	return nil
}

// level returns the level at which a message is logged.
func (c slogCore) level(e zapcore.Entry) slog.Level {
	switch {
	case e.Level > zapcore.ErrorLevel:
		return slog.LevelError
	case c.stopping.Load():
		return slog.LevelDebug
	case e.Level > zapcore.WarnLevel:
		return slog.LevelError
	case trouble.MatchString(e.Message):
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// tooEarly reports whether a message says that a new member has no entry yet from which to read its storage version.
// etcd repeats the look-up (server/etcdserver/server.go monitorStorageVersion, server/storage/schema/schema.go
// DetectSchemaVersion).
func tooEarly(e zapcore.Entry, fields []zapcore.Field) bool {
	return e.Message == "failed to update storage version" && slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, is := f.Interface.(error)
		return is && strings.Contains(err.Error(), "missing term information")
	})
}

// Sync implements zapcore.Core; there is nothing to flush.
func (c slogCore) Sync() error { return nil }

// repeats contains the times of recent messages. Messages are constants of etcd's code, so there are few.
type repeats struct {
	now func() time.Time

	mu sync.Mutex // no other lock is taken while it is held
	at map[string]logged
}

type logged struct {
	at   time.Time
	left int
}

// again reports whether a message may be logged now. If so, the result left is the number of equal messages that were
// left out since this message was logged last.
func (r *repeats) again(message string) (left int, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, last := r.now(), r.at[message]
	if !last.at.IsZero() && now.Sub(last.at) < repeatAfter {
		last.left++
		r.at[message] = last
		return 0, false
	}
	r.at[message] = logged{at: now}
	return last.left, true
}

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	all := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
	}
	for key, value := range enc.Fields {
		all = append(all, slog.Any(key, value))
	}
	return all
}
