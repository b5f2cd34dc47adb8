package model

import (
	"iter"
	"strings"
)

// Wildcards yields the wildcards that cover a host or wildcard, without the argument itself, the most specific first.
func Wildcards(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 1; i < len(host); i++ {
			if pattern := "*" + host[i:]; (host[i] == '.' || host[i] == '-') && pattern != host && !yield(pattern) {
				return
			}
		}
		if host != "*" {
			yield("*")
		}
	}
}

// Covers reports whether a wildcard covers a host or another wildcard: whether Wildcards yields it.
func Covers(wildcard, host string) bool {
	rest, is := strings.CutPrefix(wildcard, "*")
	switch {
	case !is || wildcard == host:
		return false
	case rest == "":
		return true
	}
	return (rest[0] == '.' || rest[0] == '-') && len(host) > len(rest) && strings.HasSuffix(host, rest)
}

// NamesServer says whether clients of a protocol say whom they want, by a host header or by SNI.
func NamesServer(p Protocol) bool {
	switch p {
	case Protocol_PROTOCOL_HTTP, Protocol_PROTOCOL_HTTP2, Protocol_PROTOCOL_GRPC, Protocol_PROTOCOL_GRPC_WEB, Protocol_PROTOCOL_HTTPS, Protocol_PROTOCOL_TLS:
		return true
	default:
		return false
	}
}
