package inject

import (
	"reflect"
	"regexp"
	"strings"
	"text/template"
)

// boundCounts bounds the results of the sprig functions until, untilStep, seq, repeat and nindent. The size of the
// result grows with a numeric argument, so a large number is refused before the call. For repeat, a large product of
// the number and the text's size is refused too. For nindent, a large product of the number and the text's lines is
// refused. boundCounts also calls boundReplacements. The map must contain all these functions except seq.
func boundCounts(all template.FuncMap) {
	number := func(v reflect.Value) int {
		for v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		switch {
		case v.CanInt():
			return int(v.Int())
		case v.CanUint():
			return int(v.Uint())
		case v.CanFloat():
			return int(v.Float())
		default:
			return 0 // sprig refuses such a value or reads it as 0
		}
	}
	abs := func(n int) int { return max(n, -n, 0) }
	all["until"] = atMost(all["until"], maxElements, func(a []reflect.Value) int { return abs(number(a[0])) })
	all["untilStep"] = atMost(all["untilStep"], maxElements, func(a []reflect.Value) int { return abs(number(a[0])) + abs(number(a[1])) })
	if seq, is := all["seq"].(func(...int) string); is {
		all["seq"] = func(bounds ...int) (string, error) {
			for _, n := range bounds {
				if abs(n) > maxElements {
					return "", errLarge
				}
			}
			return seq(bounds...), nil
		}
	}
	times := func(n, size int) int { return min(abs(n), maxElements+1) * max(1, min(size, maxText)) }
	all["repeat"] = atMost(all["repeat"], maxElements, func(a []reflect.Value) int { return times(number(a[0]), a[1].Len()) })
	all["nindent"] = atMost(all["nindent"], maxElements, func(a []reflect.Value) int {
		return times(number(a[0]), 1+strings.Count(a[1].String(), "\n"))
	})
	boundReplacements(all, number)
}

// boundReplacements bounds the sprig functions whose result grows with the product of two arguments. If an upper bound
// of the result is large, the call is refused, because both arguments may come from a Pod's annotations.
func boundReplacements(all template.FuncMap, number func(reflect.Value) int) {
	all["replace"] = atMost(all["replace"], maxText, func(a []reflect.Value) int {
		return a[2].Len() + strings.Count(a[2].String(), a[0].String())*a[1].Len()
	})
	for _, name := range []string{"regexReplaceAll", "mustRegexReplaceAll", "regexReplaceAllLiteral", "mustRegexReplaceAllLiteral"} {
		all[name] = atMost(all[name], maxText, func(a []reflect.Value) int { return replaced(a[0].String(), a[1].String(), a[2].String()) })
	}
	all["wrapWith"] = atMost(all["wrapWith"], maxText, func(a []reflect.Value) int {
		text := a[2].String()
		separator := max(a[1].Len(), 1) // empty: sprig inserts a newline
		return len(text) + (len(text)/max(number(a[0]), 1)+strings.Count(text, " ")+1)*separator
	})
	all["join"] = atMost(all["join"], maxText, func(a []reflect.Value) int {
		list := a[1]
		for list.Kind() == reflect.Interface {
			list = list.Elem()
		}
		if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
			return 0 // join returns the value as text, without a separator
		}
		size := max(list.Len()-1, 0) * a[0].Len()
		for i := 0; i < list.Len() && size <= maxText; i++ {
			size += textSize(list.Index(i), maxText-size)
		}
		return size
	})
}

// textSize estimates the bytes of the text of a value: the bytes of its strings, also of those in nested lists and
// maps. Several references to one string count several times, as in the text. Other values count one byte each. The
// work is bounded: textSize stops when the result exceeds maxSize.
func textSize(v reflect.Value, maxSize int) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	size := 1
	add := func(element reflect.Value) { size += 1 + textSize(element, maxSize-size) }
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Len()
		}
		for i := 0; i < v.Len() && size <= maxSize; i++ {
			add(v.Index(i))
		}
	case reflect.Map:
		for each := v.MapRange(); size <= maxSize && each.Next(); {
			add(each.Key())
			add(each.Value())
		}
	default:
	}
	return size
}

// replaced returns an upper bound for the length of a text after all matches of a regular expression are replaced. Each
// $ in the replacement may stand for a whole match.
func replaced(expression, text, replacement string) int {
	re, err := regexp.Compile(expression)
	if err != nil {
		return 0 // the function itself fails: it returns the error, or panics
	}
	n := 0
	re.ReplaceAllStringFunc(text, func(string) string { n++; return "" })
	return len(text) + n*len(replacement) + strings.Count(replacement, "$")*len(text)
}
