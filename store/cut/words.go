package cut

import "strings"

// finder searches texts for words, in upper or lower case. It is faster than a regular expression of many alternatives,
// because it compares words only at pairs of bytes that begin a word. Few pairs do.
type finder struct {
	pairs [1 << 16]bool // pairs of bytes that begin a word
	words [256][]string // by their first byte, in lower case; each word has at least two bytes
}

// newFinder returns a finder of words, which are in lower case and have at least two bytes.
func newFinder(words ...string) *finder {
	f := &finder{}
	for _, w := range words {
		f.words[w[0]] = append(f.words[w[0]], w)
		for _, first := range []byte{w[0], upper(w[0])} {
			for _, second := range []byte{w[1], upper(w[1])} {
				f.pairs[uint16(first)<<8|uint16(second)] = true
			}
		}
	}
	return f
}

// upper returns a byte in upper case.
func upper(b byte) byte {
	if 'a' <= b && b <= 'z' {
		b -= 'a' - 'A'
	}
	return b
}

// in reports whether a text has one of the words.
func (f *finder) in(text string) bool {
	for i := 1; i < len(text); i++ {
		if f.pairs[uint16(text[i-1])<<8|uint16(text[i])] && f.at(text[i-1:]) {
			return true
		}
	}
	return false
}

// at reports whether a text begins with one of the words.
func (f *finder) at(text string) bool {
	first := text[0]
	if 'A' <= first && first <= 'Z' {
		first += 'a' - 'A'
	}
	for _, w := range f.words[first] {
		if len(text) >= len(w) && strings.EqualFold(text[:len(w)], w) {
			return true
		}
	}
	return false
}

// ofNames are parts of keys whose values are credentials.
var ofNames = []string{"passw", "passphrase", "pass-phrase", "pass_phrase", "pass phrase", "pwd", "secret", "token",
	"apikey", "api-key", "api_key", "accesskey", "access-key", "access_key", "privatekey", "private-key", "private_key",
	"credential", "authorization", "cookie", "x-auth", "x-key", "sessionid", "session-id", "session_id", "honeycomb-team"}

// ofTypes are parts of the names of Envoy's types with fields that are credentials. Encoded messages have the names
// of their types, but not those of their fields.
var ofTypes = []string{"tlscontext", "redis", "aws", "extauthz", "basicauth", "apikeyauth", "skywalking", "filebasedmetadata"}

// names finds the words of ofNames.
var names = newFinder(ofNames...)

// hasUser reports whether a text has a colon before an @, without a space, quote or slash after the colon.
func hasUser(text string) bool {
	for {
		at := strings.IndexByte(text, '@')
		if at < 0 {
			return false
		}
		if before := text[:at]; strings.LastIndexByte(before, ':') > strings.LastIndexAny(before, " \t\r\n/\"'\\") {
			return true
		}
		text = text[at+1:]
	}
}
