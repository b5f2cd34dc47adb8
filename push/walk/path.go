package walk

import (
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// normalised returns a path as a connection manager normalises the path. The manager's settings decide about escaped
// slashes, dot segments and repeated slashes. It returns false for a path that the manager refuses.
func normalised(text string, m *hcmv3.HttpConnectionManager) (string, bool) {
	if strings.Contains(text, "#") {
		return "", false
	}
	path, query, asks := strings.Cut(text, "?")
	switch m.GetPathWithEscapedSlashesAction() {
	case hcmv3.HttpConnectionManager_REJECT_REQUEST:
		if unescapeSlashes(path) != path {
			return "", false
		}
	case hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD, hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
		path = unescapeSlashes(path)
	}
	if m.GetNormalizePath().GetValue() {
		path = withoutDots(unescape(path))
	}
	if m.GetMergeSlashes() {
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
	}
	if asks {
		path += "?" + query
	}
	return path, true
}

// redirects reports whether a manager redirects a request to the normalised path, because the path has escaped slashes.
func redirects(text string, m *hcmv3.HttpConnectionManager) bool {
	path, _, _ := strings.Cut(text, "?")
	return m.GetPathWithEscapedSlashesAction() == hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT && unescapeSlashes(path) != path
}

func unescapeSlashes(path string) string {
	return strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`).Replace(path)
}

// unescape decodes percent escapes of unreserved characters, and replaces backslashes by slashes. Other escapes stay.
func unescape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			if n, ok := unhex(path[i+1], path[i+2]); ok && isUnreserved(n) {
				b.WriteByte(n)
				i += 2
				continue
			}
		}
		if c == '\\' {
			c = '/'
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func unhex(a, b byte) (n byte, ok bool) {
	for _, c := range []byte{a, b} {
		at := strings.IndexByte("0123456789abcdef", c|0x20)
		if at < 0 {
			return 0, false
		}
		n = n<<4 | byte(at)
	}
	return n, true
}

// withoutDots resolves the segments "." and ".." of a path (RFC 3986, 5.2.4). Repeated slashes stay.
func withoutDots(path string) string {
	if !strings.HasPrefix(path, "/") {
		return path
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}
