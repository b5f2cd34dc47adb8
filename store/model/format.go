package model

import (
	"regexp"
	"strings"
)

// command matches one command of Envoy's format strings, or an escaped percent sign
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#command-operators).
var command = regexp.MustCompile(`%%|%[A-Z0-9_]+(\([^)]*\))?(:[0-9]+)?%`)

// IsFormat reports whether a text has the form of a format string of Envoy, such as the value of a header: every
// percent sign belongs to a command or is escaped. The names of commands are not checked. Envoy rejects a whole route
// configuration for a lone "50%".
func IsFormat(text string) bool {
	return !strings.Contains(text, "%") || !strings.Contains(command.ReplaceAllLiteralString(text, ""), "%")
}
