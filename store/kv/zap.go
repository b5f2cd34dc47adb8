package kv

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo gives etcd a logger whose warnings and errors end in ours; the rest of what it says is left out.
func zapTo(log *slog.Logger) *zap.Logger {
	return zap.New(slogCore{log.With(slog.String("from", "etcd"))})
}

type slogCore struct{ log *slog.Logger }

func (c slogCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log.With(attrs(fields)...)}
}

func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, e.Message, attrs(fields)...)
	return nil
}

func (c slogCore) Sync() error { return nil }

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
