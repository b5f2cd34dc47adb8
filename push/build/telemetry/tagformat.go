package telemetry

import (
	"regexp"
	"strings"
)

// Forms of CEL expressions: an attribute that Envoy has without Istio's filters (request.host,
// request.headers['x-team'], https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/attributes), a
// literal text, and string() around an expression.
var (
	attribute = regexp.MustCompile(`^(request|response|connection|upstream|source|destination|xds|metadata)` +
		`(\.[a-z_]+|\[('[^'"%()\\]+'|"[^'"%()\\]+")\])+$`)
	literal = regexp.MustCompile(`^('[^'\\]*'|"[^"\\]*")$`)
	asText  = regexp.MustCompile(`^string\((.*)\)$`)
)

// Format converts the CEL expression of a tag's value to the format of Envoy's access logs. It supports a literal text,
// or one attribute, also inside string(), and returns false for other expressions. Envoy would refuse a whole listener
// for a function that it lacks, string() and concatenation among them.
func Format(expression string) (format string, ok bool) {
	expression = strings.TrimSpace(expression)
	if literal.MatchString(expression) {
		return strings.ReplaceAll(expression[1:len(expression)-1], "%", "%%"), true
	}
	if inner := asText.FindStringSubmatch(expression); inner != nil {
		expression = strings.TrimSpace(inner[1])
	}
	if !attribute.MatchString(expression) {
		return "", false
	}
	return "%CEL(" + expression + ")%", true
}
