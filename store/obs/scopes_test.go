package obs

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// held are the levels of all scopes, as "ads:debug admit:info ...".
func held(l *Levels) string {
	var all []string
	for _, s := range l.All() {
		all = append(all, s.Name+":"+s.Level())
	}
	return strings.Join(all, " ")
}

// A scope has its own level, otherwise that of default; a level for all precedes both. Unknown scopes are returned.
func TestNewLevels(t *testing.T) {
	for text, want := range map[string]struct {
		levels  string
		unknown []string
	}{
		"info":                                {"admit:info ads:info ca:info default:info etcd:info ingest:info", nil},
		"default:warn,ads:debug":              {"admit:warn ads:debug ca:warn default:warn etcd:warn ingest:warn", nil},
		"ads:debug,wle:info,authn:info":       {"admit:info ads:debug ca:info default:info etcd:info ingest:info", []string{"authn", "wle"}},
		"all:none,ads:debug,default:error":    {"admit:none ads:none ca:none default:none etcd:none ingest:none", nil},
		"fatal,etcd:warning,ads:warn,ca:INFO": {"admit:fatal ads:warn ca:info default:fatal etcd:warn ingest:fatal", nil},
	} {
		l, unknown, err := NewLevels(text)
		if err != nil || !slices.Equal(unknown, want.unknown) {
			t.Errorf("%s: %q %v, want %q", text, unknown, err, want.unknown)
			continue
		}
		if got := held(l); got != want.levels {
			t.Errorf("%s: %s, want %s", text, got, want.levels)
		}
	}
	if _, _, err := NewLevels("ads:loud"); err == nil || !strings.Contains(err.Error(), `"ads:loud"`) {
		t.Errorf("%v", err)
	}
}

// Lines are written by the present level of their scope, whenever their logger was created, and contain the scope.
// Reset restores the first level.
func TestScoped(t *testing.T) {
	l, _, err := NewLevels("warn")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(l.Handler(slog.NewTextHandler(&out, nil)))
	ads := Scoped(log.With("from", "test"), ScopeADS).WithGroup("g")
	written := func() string {
		out.Reset()
		log.Debug("one")
		ads.Debug("two", "a", 1)
		log.Warn("three")
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			lines = append(lines, message)
		}
		return strings.Join(lines, "; ")
	}
	for _, step := range []struct{ scope, level, want string }{{ScopeADS, "debug", "two from=test g.a=1 g.scope=ads; three"}, {ScopeDefault, "none", "two from=test g.a=1 g.scope=ads"},
		{ScopeADS, "error", ""}, {ScopeDefault, "debug", "one; three"}} {
		if err := l.Find(step.scope).Set(step.level); err != nil {
			t.Fatal(err)
		}
		if got := written(); got != step.want {
			t.Errorf("%s %s: %q, want %q", step.scope, step.level, got, step.want)
		}
	}
	if err := l.Find(ScopeADS).Set("loud"); err == nil || l.Find(ScopeADS).Level() != "error" {
		t.Errorf("%v, level %s", err, l.Find(ScopeADS).Level())
	}
	for _, s := range l.All() {
		s.Reset()
	}
	if got := written(); got != "three" {
		t.Errorf("after the reset: %q", got)
	}
	plain := slog.New(slog.NewTextHandler(&out, nil))
	if Scoped(plain, ScopeADS) != plain || Scoped(log, "other") != log {
		t.Error("a logger without such a scope is another one")
	}
}
