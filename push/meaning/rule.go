package meaning

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// noLimit is the text of a timeout that never ends a request.
const noLimit = "no limit"

// defaultTimeout is Envoy's timeout for a route that sets no timeout.
const defaultTimeout = 15 * time.Second

// share is the part of a rule's requests that one cluster receives.
type share struct {
	cluster string
	weight  uint64
}

// rule is the model of a route. The field total is the sum of the weights in the field shares.
type rule struct {
	name, match string
	key         string         // match, with a digest appended if match omits a credential
	route       *routev3.Route // the original route
	action      string         // answer of the proxy itself (redirect or direct response); empty if requests are forwarded
	shares      []share        // sorted by cluster
	total       uint64         // sum of the weights
	timeout     time.Duration  // 0: no limit
	retries     uint32
	retryOn     string
	perTry      string
	rewrite     string
	mirrors     string
	hash        string
	headers     string
	values      string // digest of the added headers with their credentials, only for comparison
	fault       string
	object      string         // the VirtualService, as "namespace/name"
	span        string         // name of trace spans
	rest        *routev3.Route // the fields outside of the model
}

// ruleOf returns the model of a route. It does not change the route.
func ruleOf(m *routev3.Route) rule {
	rest := proto.Clone(m).(*routev3.Route)
	r := rule{name: m.GetName(), match: matchText(m.GetMatch()), route: m, rest: rest,
		object: configOf(rest.GetMetadata()), span: rest.GetDecorator().GetOperation()}
	rest.Name, rest.Match, r.key = "", nil, matchKey(m.GetMatch(), r.match)
	r.headers, r.values = takeHeaders(rest)
	r.fault = takeFault(rest)
	if rest.Decorator != nil {
		rest.Decorator.Operation = ""
	}
	switch {
	case rest.GetRedirect() != nil:
		r.action, rest.Action = "redirect "+brief(rest.GetRedirect()), nil
		if len(r.action) > maxValue { // the text is shortened, so rest keeps the action
			rest.Action = m.Action
		}
	case rest.GetDirectResponse() != nil:
		d := rest.GetDirectResponse()
		r.action, d.Status = fmt.Sprintf("answers %d", d.GetStatus()), 0
	case rest.GetRoute() != nil:
		r.takeForward(rest.GetRoute())
	}
	return r
}

// takeForward copies fields of a forwarding action into the model, and clears them in the action.
func (r *rule) takeForward(a *routev3.RouteAction) {
	r.takeShares(a)
	r.timeout = defaultTimeout
	if a.Timeout != nil {
		r.timeout = a.Timeout.AsDuration()
	}
	//lint:ignore SA1019 the builder sets it to the same limit
	if proto.Equal(a.MaxGrpcTimeout, a.Timeout) {
		//lint:ignore SA1019 the same
		a.MaxGrpcTimeout = nil
	}
	a.Timeout = nil
	if p := a.GetRetryPolicy(); p != nil {
		r.retries = p.GetNumRetries().GetValue()
		if p.NumRetries == nil {
			r.retries = 1 // Envoy's default
		}
		r.retryOn = orNone(p.GetRetryOn())
		if t := p.GetPerTryTimeout(); t != nil {
			r.perTry = t.AsDuration().String()
		}
		if p.NumRetries, p.RetryOn, p.PerTryTimeout = nil, "", nil; proto.Size(p) == 0 {
			a.RetryPolicy = nil
		}
	}
	var rewrites []string
	if p := a.GetPrefixRewrite(); p != "" {
		rewrites, a.PrefixRewrite = append(rewrites, "prefix to "+p), ""
	}
	if p := a.GetRegexRewrite(); p != nil {
		rewrites = append(rewrites, fmt.Sprintf("%s to %s", p.GetPattern().GetRegex(), p.GetSubstitution()))
		p.Pattern, p.Substitution = nil, ""
	}
	if h := a.GetHostRewriteLiteral(); h != "" {
		rewrites, a.HostRewriteSpecifier = append(rewrites, "host to "+h), nil
	}
	r.rewrite = strings.Join(rewrites, ", ")
	r.takeMirrors(a)
	var keys []string
	for _, h := range a.GetHashPolicy() {
		keys = append(keys, hashText(h))
	}
	r.hash, a.HashPolicy = strings.Join(keys, ", "), nil
}

// sharesOf returns the clusters of an action, sorted by name, and the sum of their weights.
func sharesOf(a *routev3.RouteAction) (shares []share, total uint64) {
	if c := a.GetCluster(); c != "" {
		return []share{{c, 1}}, 1
	}
	sums := map[string]uint64{}
	for _, c := range a.GetWeightedClusters().GetClusters() {
		sums[c.GetName()] += uint64(c.GetWeight().GetValue())
		total += uint64(c.GetWeight().GetValue())
	}
	for _, name := range bothKeys(sums, nil) {
		shares = append(shares, share{name, sums[name]})
	}
	return shares, total
}

// takeShares moves the clusters of an action to the model. A weighted cluster with further settings stays in the
// action, without its weight.
func (r *rule) takeShares(a *routev3.RouteAction) {
	r.shares, r.total = sharesOf(a)
	if a.GetCluster() != "" {
		a.ClusterSpecifier = nil
	}
	weighted := a.GetWeightedClusters()
	if weighted == nil {
		return
	}
	weighted.Clusters = slices.DeleteFunc(weighted.Clusters, func(c *routev3.WeightedCluster_ClusterWeight) bool {
		c.Weight = nil
		return proto.Equal(c, &routev3.WeightedCluster_ClusterWeight{Name: c.GetName()})
	})
	if proto.Size(weighted) == 0 {
		a.ClusterSpecifier = nil
	}
}

// takeMirrors moves the mirrors of an action (clusters that receive copies of requests) to the model. A mirror policy
// with further settings stays in the action.
func (r *rule) takeMirrors(a *routev3.RouteAction) {
	var texts []string
	for _, m := range a.GetRequestMirrorPolicies() {
		f := m.GetRuntimeFraction().GetDefaultValue()
		text := shortCluster(m.GetCluster())
		if f != nil {
			text += " " + fractionText(f)
		}
		texts = append(texts, text)
		if m.Cluster = ""; m.RuntimeFraction != nil {
			m.RuntimeFraction.DefaultValue = nil
		}
	}
	slices.Sort(texts)
	r.mirrors = strings.Join(texts, ", ")
	if len(texts) == 0 {
		return
	}
	a.RequestMirrorPolicies = slices.DeleteFunc(a.RequestMirrorPolicies, func(m *routev3.RouteAction_RequestMirrorPolicy) bool {
		m.DisableShadowHostSuffixAppend = !m.DisableShadowHostSuffixAppend // the builder always sets it, so true is normal
		if m.GetTraceSampled() != nil && !m.GetTraceSampled().GetValue() {
			m.TraceSampled = nil
		}
		return proto.Size(m) == 0 || m.RuntimeFraction != nil && proto.Size(m) == proto.Size(&routev3.RouteAction_RequestMirrorPolicy{
			RuntimeFraction: m.RuntimeFraction}) && proto.Size(m.RuntimeFraction) == 0
	})
}

// hashText describes the key of a hash policy: a header, a query parameter or the source address. For a policy of
// another kind, or with further settings, the text is a digest.
func hashText(h *routev3.RouteAction_HashPolicy) string {
	switch p := h.GetPolicySpecifier().(type) {
	case *routev3.RouteAction_HashPolicy_Header_:
		if proto.Equal(p.Header, &routev3.RouteAction_HashPolicy_Header{HeaderName: p.Header.GetHeaderName()}) && !h.GetTerminal() {
			return "header " + p.Header.GetHeaderName()
		}
	case *routev3.RouteAction_HashPolicy_QueryParameter_:
		if !h.GetTerminal() {
			return "parameter " + p.QueryParameter.GetName()
		}
	case *routev3.RouteAction_HashPolicy_ConnectionProperties_:
		if p.ConnectionProperties.GetSourceIp() && !h.GetTerminal() {
			return "source address"
		}
	}
	return digest(h.ProtoReflect(), maxDepth)
}

// to describes the answer of the proxy itself, or the destinations of a rule.
func (r rule) to() string {
	if r.action != "" {
		return r.action
	}
	texts := make([]string, 0, len(r.shares))
	for _, s := range r.shares {
		text := shortCluster(s.cluster)
		if len(r.shares) > 1 {
			text += " " + percent(s.weight, r.total)
		}
		texts = append(texts, text)
	}
	return list(texts)
}

// percent returns the quotient of its arguments as a percentage, with at most one decimal digit. For a zero divisor it
// returns "0%".
func percent(part, of uint64) string {
	if of == 0 {
		return "0%"
	}
	return strings.TrimSuffix(strconv.FormatFloat(float64(part)*100/float64(of), 'f', 1, 64), ".0") + "%"
}

// points returns the share of a cluster in percent.
func (r rule) points(cluster string) float64 {
	for _, s := range r.shares {
		if s.cluster == cluster && r.total > 0 {
			return float64(s.weight) * 100 / float64(r.total)
		}
	}
	return 0
}

// sameShares reports whether each cluster receives the same fraction of the requests in both rules.
func (r rule) sameShares(to rule) bool {
	return slices.EqualFunc(r.shares, to.shares, func(a, b share) bool {
		return a.cluster == b.cluster && a.weight*to.total == b.weight*r.total
	})
}

// label returns a name of the rule for use in sentences.
func (r rule) label() string {
	if r.name != "" {
		return fmt.Sprintf("rule %q", r.name)
	}
	return "rule " + r.match
}

// compare adds the differences between two rules to c.
func (r rule) compare(c *change, to rule) {
	if r.match != to.match {
		c.compare("match", r.match, to.match)
	} else if !same(r.route.GetMatch(), to.route.GetMatch()) {
		c.others(r.route.GetMatch(), to.route.GetMatch())
	}
	switch a, b := r.to(), to.to(); {
	case a != b:
		c.compare("", a, b)
	case !r.sameShares(to):
		c.compare("weights", r.weights(), to.weights())
	}
	c.compare("timeout", timeoutText(r), timeoutText(to))
	c.compare("retries", strconv.Itoa(int(r.retries)), strconv.Itoa(int(to.retries)))
	if r.retries > 0 && to.retries > 0 {
		c.compare("retries on", r.retryOn, to.retryOn)
		c.compare("timeout of each try", r.perTry, to.perTry)
	}
	c.compare("rewrites", r.rewrite, to.rewrite)
	c.compare("mirrors", r.mirrors, to.mirrors)
	c.compare("hash", r.hash, to.hash)
	if c.compare("headers", r.headers, to.headers); r.headers == to.headers && r.values != to.values {
		*c = append(*c, "headers: the value of a credential changes")
	}
	c.compare("fault", r.fault, to.fault)
	for _, part := range differences(r.rest, to.rest) {
		*c = append(*c, tidy(part))
	}
	c.compare("name", r.name, to.name)
	c.compare("VirtualService", r.object, to.object)
	if len(*c) == 0 {
		c.compare("name of spans", r.span, to.span)
	}
}

// weights lists the full names of the clusters with their weights.
func (r rule) weights() string {
	texts := make([]string, 0, len(r.shares))
	for _, s := range r.shares {
		texts = append(texts, fmt.Sprintf("%s %d", s.cluster, s.weight))
	}
	return strings.Join(texts, ", ")
}

// timeoutText returns the timeout of a rule that forwards requests. For other rules it returns "".
func timeoutText(r rule) string {
	switch {
	case len(r.shares) == 0:
		return ""
	case r.timeout == 0:
		return noLimit
	}
	return r.timeout.String()
}

// perFilter is the beginning of a path to the settings of an HTTP filter in a route.
const perFilter = "typed_per_filter_config[envoy.filters.http."

// tidy shortens a difference that begins with perFilter. It removes perFilter and the first "]". Other differences stay
// unchanged.
func tidy(part string) string {
	if rest, is := strings.CutPrefix(part, perFilter); is {
		return strings.Replace(rest, "]", "", 1)
	}
	return part
}

// paired contains the indices of one rule before and after the change. The index -1 stands for a missing rule.
type paired struct{ old, new int }

// pairRules pairs the rules of two lists in three passes: by name and match, by match, and by name. Each pass pairs
// only rules that are not yet paired. Each new or removed rule forms a pair of its own. The pairs are sorted by their
// new index, and the removed rules come last.
func pairRules(old, new []rule) []paired {
	all := make([]paired, 0, len(new))
	oldLeft, newLeft := indices(len(old)), indices(len(new))
	for _, key := range []func(rule) string{
		func(r rule) string { return r.name + "\x00" + r.key },
		func(r rule) string { return r.key },
		func(r rule) string { return cmp.Or(r.name, "\x00"+r.match) },
	} {
		places := map[string][]int{}
		for _, i := range oldLeft {
			places[key(old[i])] = append(places[key(old[i])], i)
		}
		taken := map[int]bool{}
		newLeft = slices.DeleteFunc(newLeft, func(j int) bool {
			at := places[key(new[j])]
			if len(at) == 0 {
				return false
			}
			places[key(new[j])] = at[1:]
			taken[at[0]] = true
			all = append(all, paired{at[0], j})
			return true
		})
		oldLeft = slices.DeleteFunc(oldLeft, func(i int) bool { return taken[i] })
	}
	for _, j := range newLeft {
		all = append(all, paired{-1, j})
	}
	slices.SortFunc(all, func(a, b paired) int { return cmp.Compare(a.new, b.new) })
	for _, i := range oldLeft {
		all = append(all, paired{i, -1})
	}
	return all
}

// indices returns the numbers from 0 to n-1.
func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
