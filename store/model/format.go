package model

import (
	"regexp"
	"strings"
)

// command matches one command of Envoy's format strings, or an escaped percent sign
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#command-operators).
var command = regexp.MustCompile(`%%|%[A-Z0-9_]+(\([^)]*\))?(:[0-9]+)?%`)

// IsFormat reports whether a text is a valid format string, such as the value of a header. Envoy rejects a whole route
// configuration for a lone "50%".
func IsFormat(text string) bool {
	return !strings.Contains(text, "%") || !strings.Contains(command.ReplaceAllLiteralString(text, ""), "%")
}
