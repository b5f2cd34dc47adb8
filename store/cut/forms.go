package cut

import (
	"regexp"
	"slices"
)

// form describes values that are credentials because of their form, whatever the name of their key.
type form struct {
	name string
	// words are in lower case. Each text of this form has one of the words, so texts without a word are not searched.
	// Texts of a form without words are found by hasUser.
	words []string
	text  *regexp.Regexp // matches a value; its two groups are retained before and after Cut
}

// forms is the table of all forms, in the order in which they are cut.
var forms = []form{
	{"private key in PEM", []string{"private key"},
		regexp.MustCompile(`()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)()`)},
	{"PEM in base64, which begins 0, 1 or 2 bytes before it", []string{"ls0tls1crudjti", "0tls0tqkvhsu4g", "tls0tlujfr0lo"},
		regexp.MustCompile(`()(?:LS0tLS1CRUdJTi|[A-Za-z0-9+/=_-]*(?:0tLS0tQkVHSU4g|tLS0tLUJFR0lO))[A-Za-z0-9+/=_-]+()`)},
	{"private key in PEM, in hexadecimal", []string{"2d2d424547494e20"},
		regexp.MustCompile(`(?i)()(?:2d){2,5}424547494e20[0-9a-f]*50524956415445204b4559[0-9a-f]*()`)},
	{"JSON web token", []string{"eyj"}, regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}\.?[A-Za-z0-9_-]*()`)},
	{"scheme of the header authorization", []string{"bearer", "basic", "apikey"},
		regexp.MustCompile(`(?i)(\b(?:bearer|basic|apikey)(?:\s|\\u0020|%20)+)[A-Za-z0-9+/=._~-]{6,}()`)},
	{"scheme Token, as the whole value", []string{"token"}, regexp.MustCompile(`(?i)(^token(?:\s|%20)+)[^\s]{12,}()$`)},
	{"user and password in a URL", nil, regexp.MustCompile(`(://)[^\s/@:"'\\]*:[^\s/@"'\\]+(@)`)},
	// The host does not begin with "sha" and a digit, because name:tag@sha256:... is an image.
	{"user and password before a host", nil, regexp.MustCompile(`(^|[\s"'=(,;])[^\s/@:"'=(,;\\]+:[^\s/@"'\\]+` +
		`(@(?:[a-rt-zA-Z0-9_(\[]|s[^h\s]|sh[^a\s]|sha[^\d\s]))`)},
	{"parameter of a query", []string{"token=", "secret=", "password=", "passwd=", "pwd=", "key=", "sig=", "signature=",
		"credential=", "auth=", "session="}, regexp.MustCompile(`(?i)((?:[?&]|\\u0026)(?:` +
		`[\w.-]*(?:token|secret|password|passwd|api[-_.]?key|access[-_.]?key|signature|credential)|` +
		`pwd|key|sig|auth|session)=)[^\s&#"'\\]+()`)},
	{"key of a symmetric JSON web key", []string{`"oct`, `\"oct`}, regexp.MustCompile(`(\\?"k\\?"\s*:\s*\\?")[A-Za-z0-9_=-]{8,}(\\?")`)},
	{"token of GitHub", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"},
		regexp.MustCompile(`()\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})()`)},
	{"token of GitLab", []string{"glpat-"}, regexp.MustCompile(`()\bglpat-[A-Za-z0-9_.-]{16,}()`)},
	{"token of Slack", []string{"xox"}, regexp.MustCompile(`()\bxox[abeoprs]-[A-Za-z0-9-]{8,}()`)},
	{"key of AWS", []string{"akia", "asia"}, regexp.MustCompile(`()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b()`)},
	{"key of Google", []string{"aiza", "ya29."}, regexp.MustCompile(`()\b(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,})()`)},
	{"token of Vault", []string{"hvs.", "hvb."}, regexp.MustCompile(`()\bhv[sb]\.[A-Za-z0-9_-]{16,}()`)},
	{"key of Stripe", []string{"k_live_"}, regexp.MustCompile(`()\b[rs]k_live_[A-Za-z0-9]{8,}()`)},
}

// suspicious finds a word in every text with a credential, except one with a user and a password (hasUser).
var suspicious = func() *finder {
	words := slices.Concat(ofNames, ofTypes)
	for _, f := range forms {
		words = append(words, f.words...)
	}
	return newFinder(words...)
}()
