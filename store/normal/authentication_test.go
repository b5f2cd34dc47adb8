package normal

import (
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// oneKey is a key set (RFC 7517, appendix A.1).
const oneKey = `{"keys":[{"kty":"EC","kid":"1","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`

// A rule that Istio's webhook refuses, or for which Envoy would refuse a listener, spoils the policy: without a
// previous good version it closes the workloads that it selects.
func TestRuleOfTokensThatIsRefused(t *testing.T) {
	for rule, field := range map[string]string{
		"{}":                           "issuer",
		"{issuer: a, audiences: ['']}": "audiences[0]",
		"{issuer: a, jwks: '{}'}":      "jwks",
		"{issuer: a, jwks: 'garbage'}": "jwks",
		`{issuer: a, jwks: '{"keys": [{"kty": "RSA"}]}'}`:            "jwks",
		"{issuer: a, jwksUri: 'ftp://a/b'}":                          "jwksUri",
		"{issuer: a, jwksUri: 'https:///b'}":                         "jwksUri",
		"{issuer: a, jwksUri: 'https://user:password@a/b'}":          "jwksUri",
		"{issuer: 'https://a', fromHeaders: [{name: ''}]}":           "fromHeaders[0].name",
		"{issuer: 'https://a', fromHeaders: [{name: 'a b'}]}":        "fromHeaders[0].name",
		"{issuer: 'https://a', fromParams: [a, '']}":                 "fromParams[1]",
		"{issuer: 'https://a', fromCookies: ['']}":                   "fromCookies[0]",
		"{issuer: 'https://a', outputPayloadToHeader: 'a:b'}":        "outputPayloadToHeader",
		"{issuer: 'https://a', outputClaimToHeaders: [{header: x}]}": "outputClaimToHeaders[0].claim",
		"{issuer: 'https://a', outputClaimToHeaders: [{claim: x}]}":  "outputClaimToHeaders[0].header",
		"{issuer: 'https://a', spaceDelimitedClaims: ['']}":          "spaceDelimitedClaims[0]",
		"{issuer: 'https://a', timeout: 0s}":                         "timeout",
	} {
		r := testNormal.Object(read(t, istio("RequestAuthentication", "{jwtRules: ["+rule+"]}")), &fake{})
		if !r.Spoiled || len(r.Problems) != 1 || r.Problems[0].Field != "spec.jwtRules[0]."+field || r.Closed == nil || !r.Closed.(*model.Policy).Spec.Closed {
			t.Errorf("%s: %+v", rule, r)
		}
	}
}

// Keys that a rule does not state are looked up by where they are, for the namespace and with the timeout of the rule;
// until they are there, and while newer ones cannot be fetched, there is a problem.
func TestKeysOfRules(t *testing.T) {
	at := func(s KeySource) object.ID { return KeysID("shop", s) }
	uri, issuer, slow := at(KeySource{URI: "https://a/keys"}), at(KeySource{Issuer: "https://b"}), at(KeySource{URI: "https://a/keys", Timeout: 3 * time.Second})
	lookup := &fake{keys: map[object.ID]Keys{uri: {Set: oneKey}, issuer: {Set: oneKey, Reason: "it is away"}, slow: {Reason: "it is slow"}}}
	for _, c := range []struct {
		rule, problem string
		ref           object.ID
		keys          bool
	}{
		{"{issuer: a, jwks: '" + oneKey + "'}", "", object.ID{}, true},
		{"{issuer: a, jwksUri: 'https://a/keys'}", "", uri, true},
		{"{jwksUri: 'https://a/keys'}", "", uri, true},
		{"{issuer: 'https://b'}", "issuer: the keys at issuer https://b cannot be fetched again, for it is away: those that were fetched last stand", issuer, true},
		{"{issuer: a, jwksUri: 'https://a/keys', timeout: 3s}", "jwksUri: the keys at https://a/keys within 3s have not been fetched, for it is slow: tokens of the rule are refused until then", slow, false},
		{"{issuer: 'https://c'}", "issuer: the keys at issuer https://c have not been fetched: tokens of the rule are refused until then", at(KeySource{Issuer: "https://c"}), false},
		{"{issuer: a@b}", `jwks: or jwksUri: the issuer "a@b" is no URL that would tell where its keys are; tokens of it are refused`, object.ID{}, false},
	} {
		r := testNormal.Object(read(t, istio("RequestAuthentication", "{jwtRules: ["+c.rule+"]}")), lookup)
		if r.Spoiled || len(r.Records) != 1 {
			t.Errorf("%s: %+v", c.rule, r)
			continue
		}
		rule := model.Authentication(r.Records[0].(*model.Policy)).GetJwtRules()[0]
		if (rule.GetJwks() != "") != c.keys {
			t.Errorf("%s: keys %q", c.rule, rule.GetJwks())
		}
		said := ""
		for _, p := range r.Problems {
			if p.Severity != problem.Warning {
				t.Error(p)
			}
			said += strings.TrimPrefix(p.Field, "spec.jwtRules[0].") + ": " + p.Message
		}
		if said != c.problem {
			t.Errorf("%s: %s\nwant %s", c.rule, said, c.problem)
		}
		if found := len(r.Refs) == 1 && r.Refs[0] == c.ref; found == (c.ref == object.ID{}) {
			t.Errorf("%s: refers to %v", c.rule, r.Refs)
		}
	}
}

func TestKeySource(t *testing.T) {
	for _, s := range []KeySource{{URI: "https://a/keys?b=c#d"}, {Issuer: "https://b"}, {URI: "https://a", Timeout: 1500 * time.Millisecond}, {Issuer: "http://b/within/", Timeout: time.Minute}} {
		if got, err := ParseKeySource(s.String()); err != nil || got != s {
			t.Errorf("%v: %+v, %v", s, got, err)
		}
	}
	if _, err := ParseKeySource("https://a within a while"); err == nil {
		t.Error("a timeout that is none is taken")
	}
}

// A parsed key set contains only the usable public keys.
func TestParseKeySet(t *testing.T) {
	const key = `{"kty":"EC","kid":"1","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"`
	for text, want := range map[string]string{
		oneKey: oneKey,
		` { "keys" : [ ` + key + `, "x5c": [] }, {"kty": "new"} ], "more": 1 }`:        oneKey,
		`{"keys": [` + key + `, "d": "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"}]}`: "private " + oneKey,
		`{"keys": [` + key + `, "alg": "RS256"}, ` + key + `, "alg": "ES256"}]}`:       strings.Replace(oneKey, `"P-256",`, `"P-256","alg":"ES256",`, 1),
		`{"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "none"}]}`:                   "",
		`{"keys": []}`: "", `{}`: "", `[]`: "", `null`: "", ``: "", `{"keys": [{"kty": "new"}]}`: "", key + "}": "",
	} {
		compact, private, err := ParseKeySet([]byte(text))
		got := string(compact)
		if private {
			got = "private " + got
		}
		if (err == nil) != (want != "") || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
