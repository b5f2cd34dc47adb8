package obs

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// levels maps words to levels. The words are Istio's (istio: pkg/log, --log_output_level) and "warning", which is
// Envoy's. Navarch writes no line at level fatal or above.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "fatal": fatal, "none": none}

// Level parses the least level of log lines in the form of Istio's components (istio: pkg/log, --log_output_level). The
// form is one level, or several SCOPE:LEVEL with commas between them. Level is for programs with one scope.
//
// The level of the scope "all" takes precedence, then that of the scope "default". A level without a scope counts as
// one of "default". If a scope occurs several times, its last level counts. If the text states neither "all" nor
// "default", the level is info. scopes lists the remaining scopes in the text, sorted; their levels have no effect. The
// error names the part that is not a level, such as an empty text.
func Level(text string) (level slog.Level, scopes []string, err error) {
	said, err := parseLevels(text)
	if err != nil {
		return 0, nil, err
	}
	for scope := range said {
		if scope != scopeAll && scope != ScopeDefault {
			scopes = append(scopes, scope)
		}
	}
	slices.Sort(scopes)
	return said.level(ScopeDefault), scopes, nil
}

// scopeAll is Istio's word for every scope.
const scopeAll = "all"

// saidLevels maps scopes to their levels, as a text states them.
type saidLevels map[string]slog.Level

// level returns the level of a scope.
func (s saidLevels) level(scope string) slog.Level {
	for _, name := range []string{scopeAll, scope, ScopeDefault} {
		if level, said := s[name]; said {
			return level
		}
	}
	return slog.LevelInfo
}

// parseLevels parses a text in the form of Level.
func parseLevels(text string) (saidLevels, error) {
	said := saidLevels{}
	for part := range strings.SplitSeq(text, ",") {
		scope, word, scoped := strings.Cut(strings.TrimSpace(part), ":")
		if !scoped {
			scope, word = ScopeDefault, scope
		}
		level, known := levels[strings.ToLower(word)]
		if !known || scope == "" {
			return nil, fmt.Errorf("log level %.100q: want LEVEL or SCOPE:LEVEL, a level being debug, info, warn, error, fatal or none", part)
		}
		said[scope] = level
	}
	return said, nil
}
