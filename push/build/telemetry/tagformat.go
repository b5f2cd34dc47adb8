package telemetry

import (
	"regexp"
	"strings"
)

// An attribute as CEL names it: request.host, request.headers['x-team'], and the attributes that Envoy has without Istio's filters
// (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/attributes).
var (
	attribute = regexp.MustCompile(`^(request|response|connection|upstream|source|destination|xds|metadata)(\.[a-z_]+|\[('[^'"%()\\]+'|"[^'"%()\\]+")\])+$`)
	literal   = regexp.MustCompile(`^('[^'\\]*'|"[^"\\]*")$`)
	asText    = regexp.MustCompile(`^string\((.*)\)$`)
)

// Format is the value of a tag, an expression in CEL, as Envoy's access logs have it: a text, or one attribute, also within string(). False: it is
// something else. Envoy would refuse a whole listener for a function that it does not have there, string() and concatenation among them.
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
