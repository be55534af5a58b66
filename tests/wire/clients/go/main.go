// A transactional producer of one of three Go libraries, driven by lines of standard input, for
// tests/wire/clients/transactional.py.
//
//	transactions LIBRARY BOOTSTRAP produce ID           begin, send, copy, commit, abort
//	transactions LIBRARY BOOTSTRAP read TOPIC COUNT     prints COUNT committed records of partition 0
//
// Each command is answered with "ok", "fenced" or "error: ...".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var errFenced = errors.New("fenced")

const limit = 60 * time.Second

type producer interface {
	begin() error
	send(topic string, partition int32, value string) error
	// copy reads count records of source as a member of group, and writes them to partition 0 of target.
	copy(ctx context.Context, source, target, group string, count int) error
	end(ctx context.Context, commit bool) error
}

type library struct {
	open func(ctx context.Context, bootstrap []string, id string) (producer, error)
	read func(ctx context.Context, bootstrap []string, topic string, count int) ([]string, error)
}

var libraries = map[string]library{
	"franz-go":           {openFranz, readFranz},
	"sarama":             {openSarama, readSarama},
	"confluent-kafka-go": {openConfluent, readConfluent},
}

func main() {
	chosen, bootstrap := libraries[os.Args[1]], strings.Split(os.Args[2], ",")
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if os.Args[3] == "read" {
		count, _ := strconv.Atoi(os.Args[5])
		values, err := chosen.read(ctx, bootstrap, os.Args[4], count)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(strings.Join(values, "\n"))
		return
	}
	opened, err := chosen.open(ctx, bootstrap, os.Args[4])
	answer(err)
	lines := bufio.NewScanner(os.Stdin)
	for err == nil && lines.Scan() {
		answer(run(ctx, opened, strings.Split(lines.Text(), " ")))
	}
}

func run(ctx context.Context, opened producer, words []string) error {
	switch words[0] {
	case "begin":
		return opened.begin()
	case "send":
		partition, _ := strconv.Atoi(words[2])
		return opened.send(words[1], int32(partition), words[3])
	case "copy":
		count, _ := strconv.Atoi(words[4])
		return opened.copy(ctx, words[1], words[2], words[3], count)
	default:
		return opened.end(ctx, words[0] == "commit")
	}
}

func answer(err error) {
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.Is(err, errFenced):
		fmt.Println("fenced")
	default:
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
	}
}
