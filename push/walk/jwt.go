package walk

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
)

// ErrToken means that a text is not a JSON Web Token. Only the number of its parts and its second part are checked.
var ErrToken = errors.New("not a JSON Web Token: want three parts, of which the second is a JSON object in base64url")

// Claims decodes the claims of a token, without verifying its signature. Numbers are float64, as in encoding/json. The
// only error is ErrToken. Without an error, the map is not nil. The caller owns the map.
func Claims(token string) (map[string]any, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, ErrToken
	}
	var claims map[string]any
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims == nil {
		return nil, ErrToken
	}
	return claims, nil
}

// Unsigned returns a token with the claims and without a signature. The parameter claims must not be nil. The token is
// for walks only: no proxy accepts it. The error means that JSON cannot encode the claims.
func Unsigned(claims map[string]any) (string, error) {
	raw, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(raw) + ".", nil
}

// The constants are reasons for refusing a token that occur in several places. Other reasons are plain texts.
const (
	tokenMissing       = "no token"
	tokenUnknownIssuer = "a token of another issuer"
	tokenAudience      = "a token of another audience"
	tokenUnreadable    = "a token that does not decode"
)

// authenticate applies a jwt_authn filter. It returns the HTTP status of the filter's answer, or 0 if the request
// continues.
func (w *walker) authenticate(c *jwtv3.JwtAuthentication) int {
	w.sanitise(c)
	if c.GetBypassCorsPreflight() && w.isPreflight() {
		return 0
	}
	for _, rule := range c.GetRules() {
		if !w.matches(rule.GetMatch()) {
			continue
		}
		requirement := rule.GetRequires()
		if name := rule.GetRequirementName(); name != "" {
			requirement = c.GetRequirementMap()[name]
		}
		why := w.require(c, requirement, slices.Sorted(maps.Keys(c.GetProviders())))
		switch why {
		case "":
			return 0
		case tokenAudience:
			w.step("403: %s", why)
			return 403
		}
		w.step("401: %s", why)
		return 401
	}
	return 0
}

// sanitise removes the headers that the filter itself sets from claims, because a client must not set them.
func (w *walker) sanitise(c *jwtv3.JwtAuthentication) {
	for _, p := range c.GetProviders() {
		delete(w.Headers, strings.ToLower(p.GetForwardPayloadHeader()))
		for _, to := range p.GetClaimToHeaders() {
			delete(w.Headers, strings.ToLower(to.GetHeaderName()))
		}
	}
}

// require returns the reason why the request does not satisfy a requirement, or "" if the request satisfies it. If the
// requirement names no provider, tokens are read where the given providers expect them.
func (w *walker) require(c *jwtv3.JwtAuthentication, r *jwtv3.JwtRequirement, providers []string) string {
	switch of := r.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		return w.verify(c, of.ProviderName, nil)
	case *jwtv3.JwtRequirement_ProviderAndAudiences:
		return w.verify(c, of.ProviderAndAudiences.GetProviderName(), of.ProviderAndAudiences.GetAudiences())
	case *jwtv3.JwtRequirement_RequiresAll:
		for _, one := range of.RequiresAll.GetRequirements() {
			if why := w.require(c, one, providers); why != "" {
				return why
			}
		}
	case *jwtv3.JwtRequirement_RequiresAny:
		return w.requireAny(c, of.RequiresAny.GetRequirements(), providers)
	case *jwtv3.JwtRequirement_AllowMissing:
		return w.allowMissing(c, providers)
	case *jwtv3.JwtRequirement_AllowMissingOrFailed:
		_ = w.allowMissing(c, providers) // claims of a valid token are stored nevertheless
	}
	return ""
}

// requireAny returns the reason why the request satisfies none of the requirements, or "" if it satisfies one. As in
// Envoy, a missing token or an unknown issuer is only the reason if there is no other.
func (w *walker) requireAny(c *jwtv3.JwtAuthentication, all []*jwtv3.JwtRequirement, providers []string) (why string) {
	var named []string
	for _, one := range all {
		if name := one.GetProviderName(); name != "" {
			named = append(named, name)
		}
	}
	if len(named) > 0 {
		providers = named
	}
	lenient := func(r *jwtv3.JwtRequirement) bool {
		return r.GetAllowMissing() != nil || r.GetAllowMissingOrFailed() != nil
	}
	for _, last := range []bool{false, true} { // Envoy checks lenient requirements last
		for _, one := range all {
			if lenient(one) != last {
				continue
			}
			reason := w.require(c, one, providers)
			if reason == "" {
				return ""
			}
			if why == "" || reason != tokenMissing && reason != tokenUnknownIssuer {
				why = reason
			}
		}
	}
	return why
}

// allowMissing returns the reason why a token of the request is not valid. It returns "" if all tokens are valid, or if
// there is no token. Tokens are read where the given providers expect them. The token's issuer selects the provider
// that verifies the token. That provider must expect a token where this one was found.
func (w *walker) allowMissing(c *jwtv3.JwtAuthentication, providers []string) string {
	seen := map[token]bool{}
	for _, name := range providers {
		for _, t := range w.tokensAt(c.GetProviders()[name]) {
			if seen[t] {
				continue
			}
			seen[t] = true
			if why := w.admitByIssuer(c, providers, t); why != "" {
				return why
			}
		}
	}
	return ""
}

// admitByIssuer returns the reason why a token is not valid for the provider with the token's issuer, or "" if it is
// valid. If several providers have that issuer, Envoy picks any of them, so the token must be valid for each.
func (w *walker) admitByIssuer(c *jwtv3.JwtAuthentication, providers []string, t token) string {
	claims, err := Claims(t.text)
	if err != nil {
		return tokenUnreadable
	}
	issuer, _ := claims["iss"].(string)
	if !slices.ContainsFunc(providers, func(name string) bool {
		p := c.GetProviders()[name]
		return p.GetIssuer() == issuer && slices.Contains(w.tokensAt(p), t)
	}) {
		return tokenUnknownIssuer
	}
	why, of := "", 0
	for _, name := range slices.Sorted(maps.Keys(c.GetProviders())) {
		if c.GetProviders()[name].GetIssuer() != issuer {
			continue
		}
		of++
		if reason := w.admit(c, name, t, nil); reason != "" {
			why = reason
		}
	}
	if of > 1 {
		w.doubt(Likely, "%d rules have the issuer %s, and Envoy picks any of them", of, issuer)
	}
	return why
}

// verify returns the reason why a token for the named provider is not valid. It returns tokenMissing without tokens,
// and "" if all tokens are valid.
func (w *walker) verify(c *jwtv3.JwtAuthentication, name string, audiences []string) string {
	all := w.tokensAt(c.GetProviders()[name])
	if len(all) == 0 {
		return tokenMissing
	}
	for _, t := range all {
		if why := w.admit(c, name, t, audiences); why != "" {
			return why
		}
	}
	return ""
}
