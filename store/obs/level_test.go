package obs

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
)

// Levels are parsed in Istio's syntax; of several scopes the level for all has precedence, and the others are returned.
func TestLevel(t *testing.T) {
	for text, want := range map[string]struct {
		level  slog.Level
		scopes []string
	}{
		"debug":                            {slog.LevelDebug, nil},
		"INFO":                             {slog.LevelInfo, nil},
		"warning":                          {slog.LevelWarn, nil},
		"default:warn":                     {slog.LevelWarn, nil},
		"fatal":                            {slog.LevelError + 4, nil},
		"none":                             {math.MaxInt, nil},
		"ads:debug":                        {slog.LevelInfo, []string{"ads"}},
		"default:error,xds:debug,ads:info": {slog.LevelError, []string{"ads", "xds"}},
		"ads:debug, ads:info, error":       {slog.LevelError, []string{"ads"}},
		"all:debug,default:error":          {slog.LevelDebug, nil},
	} {
		if level, scopes, err := Level(text); err != nil || level != want.level || !slices.Equal(scopes, want.scopes) {
			t.Errorf("%s: %v %v %v, want %v", text, level, scopes, err, want)
		}
	}
	for text, named := range map[string]string{"": `""`, "chatty": `"chatty"`, "info+2": `"info+2"`, "default:info,ads:loud": `"ads:loud"`, "a:b:info": `"a:b:info"`, ":info": `":info"`, "info,": `""`} {
		if _, _, err := Level(text); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
