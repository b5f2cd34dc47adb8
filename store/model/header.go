package model

import "strings"

// connectionHeaders are the headers that frame messages or belong to one connection
// (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1).
var connectionHeaders = map[string]bool{
	"connection": true, "content-length": true, "http2-settings": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

// SetByEnvoy reports whether operations on a header, in upper or lower case, must be left out. It is true for
// pseudo-headers and host, which Envoy refuses to change. It is also true for headers that frame messages or belong to
// one connection. For example, Envoy would send a changed content-length with the unchanged body. The next server would
// then read the rest of the body as a request of another client.
func SetByEnvoy(header string) bool {
	name := strings.ToLower(header)
	return strings.HasPrefix(name, ":") || name == "host" || connectionHeaders[name]
}

// FitsLine reports whether a text has no ASCII control characters. In a header or in a line of a log, such characters
// would begin another line.
func FitsLine(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// FitsRequestLine reports whether a path or host has neither spaces nor ASCII control characters. Such characters would
// change the request line or add headers.
func FitsRequestLine(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f })
}
