package walk

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// change adds, sets and removes headers of the request. Command operators in values, such as %PROTOCOL%, are not
// evaluated.
func (w *walker) change(add []*corev3.HeaderValueOption, remove []string) {
	for _, name := range remove {
		delete(w.Headers, strings.ToLower(name))
	}
	for _, h := range add {
		name, value := strings.ToLower(h.GetHeader().GetKey()), h.GetHeader().GetValue()
		if old := w.Headers[name]; old != "" && h.GetAppendAction() == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			value = old + "," + value
		}
		w.Headers[name] = value
	}
}

// group matches a reference to a capture group in a substitution of RE2.
var group = regexp.MustCompile(`\\([0-9])`)

// rewrite applies a route's rewrites of the path and of the host to the request.
func (w *walker) rewrite(route *routev3.Route) {
	action, m := route.GetRoute(), route.GetMatch()
	path, query, asks := strings.Cut(w.Headers[":path"], "?")
	if to := action.GetPrefixRewrite(); to != "" {
		matched := len(m.GetPrefix()) + len(m.GetPath()) + len(m.GetPathSeparatedPrefix())
		path = to + path[min(matched, len(path)):]
	}
	if to := action.GetRegexRewrite(); to != nil {
		if re, err := regexp.Compile(to.GetPattern().GetRegex()); err == nil {
			path = re.ReplaceAllString(path, group.ReplaceAllString(strings.ReplaceAll(to.GetSubstitution(), "$", "$$"), "$${$1}"))
		}
	}
	if asks {
		path += "?" + query
	}
	w.Headers[":path"] = path
	if host := action.GetHostRewriteLiteral(); host != "" {
		w.Headers[":authority"] = host
	}
}
