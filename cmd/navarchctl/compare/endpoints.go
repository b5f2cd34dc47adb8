package compare

// asDumped changes two assignments to what an Envoy tells of the ones that it has: it states weights of endpoints that
// are 1, a health that it measured itself, its default policy, and no weights of localities unless the cluster's load
// balancing uses them.
func asDumped(theirs, ours parsed) {
	weighted := false
	eachLocality(theirs, func(locality map[string]any) {
		if locality["load_balancing_weight"] == 0.0 { // the assignment states none
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
