package model

import (
	"regexp"
	"strings"
)

// command is one command of Envoy's format strings, or the escaped percent sign
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#command-operators).
var command = regexp.MustCompile(`%%|%[A-Z0-9_]+(\([^)]*\))?(:[0-9]+)?%`)

// IsFormat says whether a text is a format string, as values of headers are: Envoy refuses a whole route configuration for a lone "50%".
func IsFormat(text string) bool {
	return !strings.Contains(text, "%") || !strings.Contains(command.ReplaceAllLiteralString(text, ""), "%")
}
