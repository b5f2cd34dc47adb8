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

// Level parses the lowest level of the written log lines, in the form of Istio's flag --log_output_level (istio:
// pkg/log). The text is a comma-separated list of entries LEVEL or SCOPE:LEVEL. Level is for programs with one scope.
//
// The result is the level of the scope "all". Without it, the result is the level of the scope "default". If neither
// scope occurs, the result is info. An entry without a scope is for "default". If a scope occurs several times, its
// last level counts. The result named scopes contains all other scopes of the text, sorted. Their levels have no
// effect. An empty text is invalid. The error quotes the invalid entry.
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

// saidLevels maps the scopes in a text to the levels that the text states for them.
type saidLevels map[string]slog.Level

// level returns the level of a scope, by the precedence that Level describes.
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
