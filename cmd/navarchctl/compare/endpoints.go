package compare

// asDumped changes both assignments, istiod's (theirs) and Navarch's (ours). It removes the fields that differ only
// because istiod's assignment comes from the dump of an Envoy. In a dump, Envoy adds the default weight 1 of endpoints,
// their measured health, and a default policy. Envoy omits the weights of localities unless the load balancing of the
// cluster uses them.
func asDumped(theirs, ours parsed) {
	weighted := false
	eachLocality(theirs, func(locality map[string]any) {
		if locality["load_balancing_weight"] == 0.0 { // Envoy's form of a missing weight
			delete(locality, "load_balancing_weight")
		}
		weighted = weighted || locality["load_balancing_weight"] != nil
	})
	for _, assignment := range []parsed{theirs, ours} {
		if policy, is := assignment["policy"].(map[string]any); is && len(policy) == 1 && policy["overprovisioning_factor"] == 140.0 {
			delete(assignment, "policy")
		}
		if policy, is := assignment["policy"].(map[string]any); is && len(policy) == 0 {
			delete(assignment, "policy")
		}
		eachLocality(assignment, func(locality map[string]any) {
			if !weighted {
				delete(locality, "load_balancing_weight")
			}
			list, _ := locality["lb_endpoints"].([]any)
			for _, e := range list {
				one, _ := e.(map[string]any)
				delete(one, "health_status")
				if one["load_balancing_weight"] == 1.0 {
					delete(one, "load_balancing_weight")
				}
				endpoint, _ := one["endpoint"].(map[string]any)
				if check, is := endpoint["health_check_config"].(map[string]any); is && len(check) == 0 {
					delete(endpoint, "health_check_config")
				}
			}
		})
	}
}

func eachLocality(assignment parsed, each func(map[string]any)) {
	list, _ := assignment["endpoints"].([]any)
	for _, e := range list {
		if locality, is := e.(map[string]any); is {
			each(locality)
		}
	}
}
