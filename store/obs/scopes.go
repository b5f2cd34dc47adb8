package obs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
)

// Scopes of navarchd's log lines. Each scope has a level of its own, which may change while the process runs.
const (
	ScopeADS     = "ads" // Istio's name
	ScopeAdmit   = "admit"
	ScopeCA      = "ca"
	ScopeDefault = "default"
	ScopeEtcd    = "etcd"
	ScopeIngest  = "ingest"
)

// Levels contains, for each scope, the lowest level of the log lines that are written. Its methods are safe for
// concurrent use.
type Levels struct{ scopes []*Scope }

// Scope is a named group of navarchd's log lines. About describes the group for operators. Name and About must not be
// changed. The methods are safe for concurrent use.
type Scope struct {
	Name, About string
	level       slog.LevelVar
	first       slog.Level
}

// NewLevels parses the initial levels, in the form that the function Level parses. A scope without a level of its own
// has the level of the scope "default", or info if the text does not state that level. A level for the scope "all"
// takes precedence over every other level. The result named unknown contains the scopes that do not exist, sorted.
// Their levels have no effect. The error quotes the invalid entry. An empty text is invalid.
func NewLevels(text string) (l *Levels, unknown []string, err error) {
	said, err := parseLevels(text)
	if err != nil {
		return nil, nil, err
	}
	l = &Levels{scopes: []*Scope{
		{Name: ScopeAdmit, About: "Role admit: the webhooks"},
		{Name: ScopeADS, About: "Role xds: plans, streams of proxies, what they refuse"},
		{Name: ScopeCA, About: "Role ca: keys, certificates, credentials of callers"},
		{Name: ScopeDefault, About: "All other lines: start, stop, addresses, memory"},
		{Name: ScopeEtcd, About: "The store, and etcd in this process"},
		{Name: ScopeIngest, About: "Role ingest: what the leader reads and writes"},
	}}
	for _, s := range l.scopes {
		s.first = said.level(s.Name)
		s.Reset()
	}
	for name := range said {
		if name != scopeAll && l.Find(name) == nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return l, unknown, nil
}

// All returns the scopes, sorted by name. The caller must not change the slice.
func (l *Levels) All() []*Scope { return l.scopes }

// Find returns the scope of a name. The result is nil if there is no such scope.
func (l *Levels) Find(name string) *Scope {
	if i := slices.IndexFunc(l.scopes, func(s *Scope) bool { return s.Name == name }); i >= 0 {
		return l.scopes[i]
	}
	return nil
}

// Handler returns the handler of the scope "default". It drops lines below the level of the scope, and passes all other
// lines to the parameter next. The method Enabled of next is never called. Scoped derives the handlers of all other
// scopes from it.
func (l *Levels) Handler(next slog.Handler) slog.Handler {
	return scoped{Handler: next, levels: l, scope: l.Find(ScopeDefault)}
}

// Level returns the word for the scope's level: debug, info, warn, error, fatal or none.
func (s *Scope) Level() string {
	return cmp.Or(levelWords[s.level.Level()], "none")
}

// Set changes the level of the scope. The argument word is debug, info, warn, warning, error, fatal or none, in upper
// or lower case. For any other word, Set returns an error and keeps the level.
func (s *Scope) Set(word string) error {
	level, known := levels[strings.ToLower(word)]
	if !known {
		return fmt.Errorf("log level %.100q: want debug, info, warn, error, fatal or none", word)
	}
	s.level.Set(level)
	return nil
}

// Reset restores the level that the scope had at the start.
func (s *Scope) Reset() { s.level.Set(s.first) }

// Scoped returns a logger whose lines belong to a scope. Its lines end with the name of the scope, except for the scope
// "default". If the handler of log is not from Levels.Handler, or if the scope does not exist, Scoped returns log
// itself.
func Scoped(log *slog.Logger, scope string) *slog.Logger {
	h, is := log.Handler().(scoped)
	if !is {
		return log
	}
	if h.scope = h.levels.Find(scope); h.scope == nil {
		return log
	}
	return slog.New(h)
}

// scoped drops the lines below the level of a scope.
type scoped struct {
	slog.Handler
	levels *Levels
	scope  *Scope
}

// Enabled implements slog.Handler.
func (h scoped) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.scope.level.Level()
}

// Handle implements slog.Handler.
func (h scoped) Handle(ctx context.Context, r slog.Record) error {
	if h.scope.Name != ScopeDefault {
		r = r.Clone()
		r.AddAttrs(slog.String(keyScope, h.scope.Name))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h scoped) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h scoped) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// levelWords maps levels to Istio's words.
var levelWords = map[slog.Level]string{slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelWarn: "warn", slog.LevelError: "error",
	fatal: "fatal", none: "none"}

const (
	fatal = slog.LevelError + 4
	none  = slog.Level(math.MaxInt)
)
