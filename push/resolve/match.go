package resolve

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// mergeMatches combines each match of a delegate's route (leaves) with each match of the delegating route (roots)
// that the delegate's match does not contradict. contradicts is the index of the first match in leaves that
// contradicts all of roots, so that the route must be left out; -1: no such match.
func mergeMatches(roots, leaves []*networkingv1.HTTPMatchRequest) (out []*networkingv1.HTTPMatchRequest, contradicts int) {
	if len(roots) == 0 {
		return leaves, -1
	}
	if len(leaves) == 0 {
		return roots, -1
	}
	for i, leaf := range leaves {
		before := len(out)
		for _, root := range roots {
			if !conflict(root, leaf) {
				out = append(out, mergeMatch(root, leaf))
			}
		}
		if len(out) == before {
			return nil, i
		}
	}
	return out, -1
}

// mergeMatch combines two matches. Conditions of the leaf override those of the root.
func mergeMatch(root, leaf *networkingv1.HTTPMatchRequest) *networkingv1.HTTPMatchRequest {
	out := &networkingv1.HTTPMatchRequest{}
	fill(out, leaf)
	fill(out, root)
	out.Name = joinNames(root.GetName(), leaf.GetName())
	out.Headers = union(root.GetHeaders(), leaf.GetHeaders())
	out.WithoutHeaders = union(root.GetWithoutHeaders(), leaf.GetWithoutHeaders())
	out.QueryParams = union(root.GetQueryParams(), leaf.GetQueryParams())
	out.SourceLabels = union(root.GetSourceLabels(), leaf.GetSourceLabels())
	return out
}

// union returns the entries of two maps. Those of the leaf take precedence.
func union[V any](root, leaf map[string]V) map[string]V {
	if len(root) == 0 {
		return leaf
	}
	if len(leaf) == 0 {
		return root
	}
	all := maps.Clone(root)
	maps.Copy(all, leaf)
	return all
}

// conflict reports whether a delegate's match contradicts the root's match. In this case the delegate's match may match
// requests that the root's match does not.
func conflict(root, leaf *networkingv1.HTTPMatchRequest) bool {
	return outside(root.GetUri(), leaf.GetUri()) || outside(root.GetScheme(), leaf.GetScheme()) ||
		outside(root.GetMethod(), leaf.GetMethod()) || outside(root.GetAuthority(), leaf.GetAuthority()) ||
		anyOutside(root.GetHeaders(), leaf.GetHeaders()) ||
		anyOutside(root.GetHeaders(), leaf.GetWithoutHeaders()) || // as in istiod, which compares with the root's headers
		anyOutside(root.GetQueryParams(), leaf.GetQueryParams()) ||
		root.GetIgnoreUriCase() != leaf.GetIgnoreUriCase() ||
		root.GetPort() != 0 && leaf.GetPort() != 0 && root.GetPort() != leaf.GetPort() ||
		root.GetSourceNamespace() != "" && root.GetSourceNamespace() != leaf.GetSourceNamespace() ||
		contradictoryLabels(root.GetSourceLabels(), leaf.GetSourceLabels()) ||
		otherGateways(root.GetGateways(), leaf.GetGateways())
}

// anyOutside reports whether leaves has a match that the root's match of the same name does not cover (outside).
// Names that are not in roots do not count.
func anyOutside(roots, leaves map[string]*networkingv1.StringMatch) bool {
	for name, leaf := range leaves {
		if outside(roots[name], leaf) {
			return true
		}
	}
	return false
}

// contradictoryLabels reports whether root and leaf have different values for some label.
func contradictoryLabels(root, leaf map[string]string) bool {
	for name, value := range leaf {
		if has, ok := root[name]; ok && has != value {
			return true
		}
	}
	return false
}

// otherGateways reports whether leaf has a gateway that is missing from root. It returns false if root is empty.
func otherGateways(root, leaf []string) bool {
	return len(root) > 0 && slices.ContainsFunc(leaf, func(g string) bool { return !slices.Contains(root, g) })
}

// outside reports whether the root's string match does not cover the delegate's string match. Regular expressions
// neither cover a match nor are covered by one. As in istiod, a match that only requires presence neither covers a
// match nor is covered by one. If root or leaf is nil, the result is false.
func outside(root, leaf *networkingv1.StringMatch) bool {
	if root == nil || leaf == nil {
		return false
	}
	if exact := root.GetExact(); exact != "" {
		return leaf.GetExact() != exact
	}
	prefix, value := root.GetPrefix(), cmp.Or(leaf.GetExact(), leaf.GetPrefix())
	return prefix == "" || !strings.HasPrefix(value, prefix)
}
