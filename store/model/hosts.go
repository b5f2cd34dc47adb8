package model

import "iter"

// Wildcards are the wildcards that cover a host or wildcard, without itself, the most specific first.
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
