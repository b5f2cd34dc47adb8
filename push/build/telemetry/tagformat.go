package telemetry

import (
	"regexp"
	"strings"

	"navarch.io/navarch/store/model"
)

// literal and asText match the supported CEL expressions other than attributes. literal is a quoted text. asText is
// string() around an expression.
var (
	literal = regexp.MustCompile(`^('[^'\\]*'|"[^"\\]*")$`)
	asText  = regexp.MustCompile(`^string\((.*)\)$`)
)

// Format converts the CEL expression of a tag's value to a format of Envoy's access logs. It supports a quoted text
// without backslashes, or one attribute with or without string() around it. It ignores white space around the
// expression. For any other expression, and for an empty one, it returns an empty format and false. For an expression
// with a function that Envoy lacks, such as concatenation, Envoy would refuse the whole listener.
func Format(expression string) (format string, ok bool) {
	expression = strings.TrimSpace(expression)
	if literal.MatchString(expression) {
		return strings.ReplaceAll(expression[1:len(expression)-1], "%", "%%"), true
	}
	if inner := asText.FindStringSubmatch(expression); inner != nil {
		expression = strings.TrimSpace(inner[1])
	}
	if !model.IsAttribute(expression) {
		return "", false
	}
	return "%CEL(" + expression + ")%", true
}
