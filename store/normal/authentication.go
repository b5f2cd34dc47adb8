package normal

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// requestAuthenticationRecords returns the record of a RequestAuthentication. Each rule in the record contains its
// inline key set, or the key set of its jwksUri or issuer, which the leader fetches (store/jwks). While a key set is
// missing, proxies refuse the tokens of its rule.
func requestAuthenticationRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	p := &securityv1.RequestAuthentication{}
	if !r.policy(obj, p, p.GetSelector) {
		return nil
	}
	r.mesh = true
	r.targetRefs(p.Selector, p.TargetRef, p.TargetRefs)
	for i, rule := range p.JwtRules {
		r.jwtRule(fmt.Sprintf("spec.jwtRules[%d]", i), rule)
	}
	spec := policySpec(obj.ID, p.Selector.GetMatchLabels(), ctx.Mesh().GetRootNamespace(), allTargets(p.TargetRef, p.TargetRefs))
	if r.spoiled || spec == nil {
		return nil
	}
	for i, rule := range p.JwtRules {
		if keys, _, err := ParseKeySet([]byte(rule.GetJwks())); err == nil {
			rule.Jwks = string(keys)
		} else { // jwks is empty: invalid sets were reported above
			rule.Jwks = n.fetched(r, fmt.Sprintf("spec.jwtRules[%d]", i), rule, obj.ID.Namespace, ctx)
		}
	}
	return r.policyRecord(model.KindRequestAuthentication, obj, spec, p)
}

// jwtRule validates one rule. It reports values that Istio's webhook or Envoy refuses.
func (r *report) jwtRule(at string, rule *securityv1.JWTRule) {
	if rule.GetIssuer() == "" && rule.GetJwksUri() == "" {
		r.requiredf(at+".issuer", "or jwksUri: one of them is needed")
	}
	if rule.GetJwks() != "" && rule.GetJwksUri() != "" {
		r.refusef(problem.Duplicate, at+".jwksUri", "has no effect beside jwks")
	}
	if rule.GetJwks() != "" {
		if _, _, err := ParseKeySet([]byte(rule.GetJwks())); err != nil {
			r.errorf(at+".jwks", "%v", err)
		}
	}
	if rule.GetJwksUri() != "" {
		if wrong := keyURL(rule.GetJwksUri()); wrong != "" {
			r.errorf(at+".jwksUri", "%q %s", rule.GetJwksUri(), wrong)
		}
	}
	for _, of := range []list{{"audiences", rule.GetAudiences()}, {"fromParams", rule.GetFromParams()}, {"fromCookies", rule.GetFromCookies()},
		{"spaceDelimitedClaims", rule.GetSpaceDelimitedClaims()}} {
		for i, v := range of.values {
			if v == "" {
				r.requiredf(fmt.Sprintf("%s.%s[%d]", at, of.field, i), "must not be empty")
			}
		}
	}
	for i, from := range rule.GetFromHeaders() {
		r.headerName(fmt.Sprintf("%s.fromHeaders[%d].name", at, i), from.GetName())
	}
	if rule.GetOutputPayloadToHeader() != "" {
		r.headerName(at+".outputPayloadToHeader", rule.GetOutputPayloadToHeader())
	}
	for i, claim := range rule.GetOutputClaimToHeaders() {
		r.headerName(fmt.Sprintf("%s.outputClaimToHeaders[%d].header", at, i), claim.GetHeader())
		if claim.GetClaim() == "" {
			r.requiredf(fmt.Sprintf("%s.outputClaimToHeaders[%d].claim", at, i), "must not be empty")
		}
	}
	r.duration1ms(at+".timeout", rule.GetTimeout(), false)
}

// headerName reports an invalid header name.
func (r *report) headerName(at, name string) {
	if !headerName.MatchString(name) {
		r.errorf(at, "%q is no header name", name)
	}
}

// keyURL returns the reason why the URI of a key set, or the issuer, cannot be requested. It returns "" for a valid
// URI.
func keyURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is no URI"
	case u.Scheme != "http" && u.Scheme != "https":
		return "is no URI of http or https"
	case u.Hostname() == "" || strings.ContainsAny(text, " \t\r\n\x00"):
		return "names no host"
	case u.User != nil:
		return "contains a user, which the leader does not send"
	}
	return ""
}

// ofCluster reports whether the host in the URI or issuer of a key source is the DNS name of a Service.
func (n *Normalizer) ofCluster(source KeySource) bool {
	u, err := url.Parse(cmp.Or(source.URI, source.Issuer))
	return err == nil && (strings.HasSuffix(u.Hostname(), ".svc") ||
		strings.HasSuffix(strings.TrimSuffix(u.Hostname(), "."), ".svc."+n.Domain))
}

// KeySourceOf returns the location of a rule's key set: its jwksUri, else its issuer. The timeout is that of the rule,
// or 0 if the rule states no timeout. Inline keys of the rule are ignored. The result for a nil rule is zero.
func KeySourceOf(rule *securityv1.JWTRule) (s KeySource) {
	if s.URI = rule.GetJwksUri(); s.URI == "" {
		s.Issuer = rule.GetIssuer()
	}
	if rule.GetTimeout() != nil {
		s.Timeout = rule.GetTimeout().AsDuration()
	}
	return s
}

// fetched returns the key set that the leader fetched for a rule without inline keys. The result is empty if no key set
// was fetched yet, or if neither URI nor issuer can be requested. In both cases a warning states the reason. There is
// also a warning if the key set cannot be fetched again.
func (n *Normalizer) fetched(r *report, at string, rule *securityv1.JWTRule, namespace string, ctx Lookup) string {
	source, field := KeySourceOf(rule), at+".jwksUri"
	if source.URI == "" {
		if field = at + ".issuer"; keyURL(source.Issuer) != "" {
			r.warnf(problem.Required, at+".jwks",
				"or jwksUri: the issuer %q is no URL that would tell where its keys are; tokens of it are refused", source.Issuer)
			return ""
		}
	}
	id := KeysID(namespace, source)
	r.ref(id)
	keys := ctx.Keys(id)
	why := ""
	switch {
	case keys.Reason != "" && !n.KeysOfCluster && n.ofCluster(source):
		why = ": its host is a Service of the cluster, from which keys are fetched with --jwks-cluster alone"
	case keys.Reason != "":
		why = ", for " + keys.Reason
	}
	switch {
	case keys.Set == "":
		r.warnf(problem.Pending, field, "the keys at %v have not been fetched%s: tokens of the rule are refused until then", source, why)
	case why != "":
		r.warnf(problem.Pending, field, "the keys at %v cannot be fetched again%s: those that were fetched last stand", source, why)
	}
	return keys.Set
}
