package walk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"

	"navarch.io/navarch/push/build/jwt"
)

// skew is the clock skew that Envoy tolerates in tokens, unless a provider states another value.
const skew = time.Minute

// token is a token of a request. The field header is the name of the header that contained the token. It is empty if a
// query parameter or a cookie contained the token.
type token struct{ text, header string }

// tokensAt returns the tokens in the headers, query parameters and cookies that a provider states.
func (w *walker) tokensAt(p *jwtv3.JwtProvider) (all []token) {
	headers, params := p.GetFromHeaders(), p.GetFromParams()
	if len(headers)+len(params)+len(p.GetFromCookies()) == 0 { // Envoy's default places
		headers, params = []*jwtv3.JwtHeader{{Name: "authorization", ValuePrefix: "Bearer "}}, []string{"access_token"}
	}
	for _, h := range headers {
		name := strings.ToLower(h.GetName())
		value, there := w.Headers[name]
		if _, after, has := strings.Cut(value, h.GetValuePrefix()); there && has {
			all = append(all, token{strings.TrimSpace(after), name})
		}
	}
	_, query, _ := strings.Cut(w.Headers[":path"], "?")
	values := parameters(query)
	for _, name := range params {
		if value, there := values[name]; there {
			all = append(all, token{text: value})
		}
	}
	for _, name := range p.GetFromCookies() {
		for one := range strings.SplitSeq(w.Headers["cookie"], ";") {
			if key, value, _ := strings.Cut(strings.TrimSpace(one), "="); key == name {
				all = append(all, token{text: value})
			}
		}
	}
	return all
}

// admit returns the reason why a token is not valid for a provider, or "" if the token is valid. It stores the claims
// of a valid token in the dynamic metadata and in headers, as the provider states. It removes the header that contained
// a valid token, unless the provider forwards that header.
func (w *walker) admit(c *jwtv3.JwtAuthentication, name string, t token, audiences []string) string {
	p := c.GetProviders()[name]
	claims, err := Claims(t.text)
	if err != nil {
		return tokenUnreadable
	}
	if issuer, _ := claims["iss"].(string); p.GetIssuer() != "" && issuer != p.GetIssuer() {
		return tokenUnknownIssuer
	}
	if why := w.expired(p, claims); why != "" {
		return why
	}
	if audiences == nil {
		audiences = p.GetAudiences()
	}
	if len(audiences) > 0 && !slices.ContainsFunc(texts(claims["aud"]), func(a string) bool { return hasAudience(audiences, a) }) {
		return tokenAudience
	}
	if p.GetLocalJwks().GetInlineString() == jwt.NoKeys() {
		return fmt.Sprintf("the key set of issuer %s is missing, so that none of its tokens is valid", p.GetIssuer())
	}
	w.doubt(Likely, "the signature of the token of %s is not verified here", p.GetIssuer())
	w.keep(p, claims)
	w.reroute = w.reroute || p.GetClearRouteCache()
	if t.header != "" && !p.GetForward() {
		delete(w.Headers, t.header)
	}
	return ""
}

// expired returns the reason why a token is not valid at the time of the request, or "" if the token is valid at that
// time.
func (w *walker) expired(p *jwtv3.JwtProvider, claims map[string]any) string {
	tolerance := skew
	if s := p.GetClockSkewSeconds(); s > 0 {
		tolerance = time.Duration(s) * time.Second
	}
	at := func(claim string) (time.Time, bool) {
		seconds, is := claims[claim].(float64)
		return time.Unix(int64(seconds), 0), is && !w.Time.IsZero()
	}
	if end, is := at("exp"); is && w.Time.After(end.Add(tolerance)) {
		return "a token that has expired"
	}
	if begin, is := at("nbf"); is && w.Time.Add(tolerance).Before(begin) {
		return "a token that is not valid yet"
	}
	return ""
}

// hasAudience reports whether the wanted audiences contain an audience of a token. As in Envoy, schemes and trailing
// slashes are ignored.
func hasAudience(wanted []string, audience string) bool {
	plain := func(s string) string {
		for _, scheme := range []string{"http://", "https://"} {
			s = strings.TrimPrefix(s, scheme)
		}
		return strings.TrimSuffix(s, "/")
	}
	return slices.ContainsFunc(wanted, func(one string) bool { return plain(one) == plain(audience) })
}

// texts returns the strings in a claim, which may be a string or a list.
func texts(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, one := range claim {
			if text, is := one.(string); is {
				all = append(all, text)
			}
		}
	}
	return all
}

// keep stores the claims of a valid token in the filter's dynamic metadata and in headers, as the provider states.
func (w *walker) keep(p *jwtv3.JwtProvider, claims map[string]any) {
	for _, to := range p.GetClaimToHeaders() {
		switch value := at(claims, strings.Split(to.GetClaimName(), ".")).(type) {
		case string, float64, bool:
			w.Headers[strings.ToLower(to.GetHeaderName())] = fmt.Sprint(value)
		}
	}
	if p.GetPayloadInMetadata() == "" {
		return
	}
	stored := map[string]any{}
	for name, value := range claims {
		text, is := value.(string)
		if is && slices.Contains(p.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims(), name) {
			var list []any
			for _, word := range strings.Fields(text) {
				list = append(list, word)
			}
			value = list
		}
		stored[name] = value
	}
	w.store(jwt.FilterName, p.GetPayloadInMetadata(), stored)
}
