package resolve

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// mergeMatches are the matches of a delegate's route: each with each of those of the route that delegates to it that it does not
// contradict. contradicts is the first that contradicts all of them, so that the route is left out; -1: none does.
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

func mergeMatch(root, leaf *networkingv1.HTTPMatchRequest) *networkingv1.HTTPMatchRequest {
	out := &networkingv1.HTTPMatchRequest{}
	fill(out, leaf)
	fill(out, root)
	out.Name = joined(root.GetName(), leaf.GetName())
	out.Headers = both(root.GetHeaders(), leaf.GetHeaders())
	out.WithoutHeaders = both(root.GetWithoutHeaders(), leaf.GetWithoutHeaders())
	out.QueryParams = both(root.GetQueryParams(), leaf.GetQueryParams())
	out.SourceLabels = both(root.GetSourceLabels(), leaf.GetSourceLabels())
	return out
}

// both has the entries of two maps; those of the leaf win.
func both[V any](root, leaf map[string]V) map[string]V {
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

// conflict says whether a delegate's match asks for what the root's does not cover.
func conflict(root, leaf *networkingv1.HTTPMatchRequest) bool {
	return outside(root.GetUri(), leaf.GetUri()) || outside(root.GetScheme(), leaf.GetScheme()) ||
		outside(root.GetMethod(), leaf.GetMethod()) || outside(root.GetAuthority(), leaf.GetAuthority()) ||
		anyOutside(root.GetHeaders(), leaf.GetHeaders()) ||
		anyOutside(root.GetHeaders(), leaf.GetWithoutHeaders()) || // as istiod: against the root's headers
		anyOutside(root.GetQueryParams(), leaf.GetQueryParams()) ||
		root.GetIgnoreUriCase() != leaf.GetIgnoreUriCase() ||
		root.GetPort() != 0 && leaf.GetPort() != 0 && root.GetPort() != leaf.GetPort() ||
		root.GetSourceNamespace() != "" && root.GetSourceNamespace() != leaf.GetSourceNamespace() ||
		contradictoryLabels(root.GetSourceLabels(), leaf.GetSourceLabels()) ||
		otherGateways(root.GetGateways(), leaf.GetGateways())
}

func anyOutside(roots, leaves map[string]*networkingv1.StringMatch) bool {
	for name, leaf := range leaves {
		if outside(roots[name], leaf) {
			return true
		}
	}
	return false
}

func contradictoryLabels(root, leaf map[string]string) bool {
	for name, value := range leaf {
		if has, ok := root[name]; ok && has != value {
			return true
		}
	}
	return false
}

func otherGateways(root, leaf []string) bool {
	return len(root) > 0 && slices.ContainsFunc(leaf, func(g string) bool { return !slices.Contains(root, g) })
}

// outside says whether a delegate's string match is not covered by the root's. Regular expressions cover nothing, and nothing covers
// them; nor does a match for anything that is there, in istiod.
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
