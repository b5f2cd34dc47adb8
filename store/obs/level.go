package obs

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
)

// levels are the words of Istio's levels (istio: pkg/log, --log_output_level), and warning, which Envoy says for warn. Of Navarch nothing is fatal
// or above.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "fatal": slog.LevelError + 4, "none": math.MaxInt}

// Level reads the least level of log lines as Istio's components do (istio: pkg/log, --log_output_level): one level, or several with commas between
// them, each as SCOPE:LEVEL. There is one scope here: that of default, or of a level without a scope, counts, the last of several; that of all counts
// before it, and info is the level where neither is said. scopes are the others, sorted, whose levels have no effect. The error names the part that is
// no level.
func Level(text string) (level slog.Level, scopes []string, err error) {
	level = slog.LevelInfo
	var all *slog.Level
	for part := range strings.SplitSeq(text, ",") {
		scope, word, scoped := strings.Cut(strings.TrimSpace(part), ":")
		if !scoped {
			scope, word = "default", scope
		}
		l, known := levels[strings.ToLower(word)]
		switch {
		case !known || scope == "":
			return 0, nil, fmt.Errorf("log level %.100q: want LEVEL or SCOPE:LEVEL, a level being debug, info, warn, error, fatal or none", part)
		case scope == "all":
			all = &l
		case scope == "default":
			level = l
		default:
			scopes = append(scopes, scope)
		}
	}
	if all != nil {
		level = *all
	}
	slices.Sort(scopes)
	return level, slices.Compact(scopes), nil
}
