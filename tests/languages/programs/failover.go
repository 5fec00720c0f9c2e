// go run failover.go ADDRESSES QUEUE COUNT
// Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.
// amqp091 does not connect again by itself: `connected` does.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	brokers  []string
	queue    string
	lock     sync.Mutex
	received = map[string]bool{}
)

func dial(network, address string) (net.Conn, error) {
	connection, err := net.DialTimeout(network, address, time.Second)
	if err == nil { // a hung broker accepts, and says nothing
		err = connection.SetDeadline(time.Now().Add(2 * time.Second))
	}
	return connection, err
}

func connected() *amqp.Connection {
	for turn := 0; ; turn++ {
		config := amqp.Config{Heartbeat: time.Second, Dial: dial} // a hung broker is given up after three of them
		connection, err := amqp.DialConfig("amqp://"+brokers[turn%len(brokers)], config)
		if err == nil {
			return connection
		}
		if turn%len(brokers) == len(brokers)-1 {
			time.Sleep(100 * time.Millisecond) // between two rounds
		}
	}
}

func consume(deliveries <-chan amqp.Delivery) {
	for delivery := range deliveries {
		lock.Lock()
		received[string(delivery.Body)] = true
		lock.Unlock()
		delivery.Ack(false)
	}
}

func opened() (*amqp.Channel, chan *amqp.Error) {
	for {
		connection := connected()
		lost := connection.NotifyClose(make(chan *amqp.Error, 1))
		channel, err := connection.Channel()
		if err == nil {
			err = channel.Confirm(false)
		}
		if err == nil {
			err = channel.Qos(100, 0, false)
		}
		if err == nil {
			var deliveries <-chan amqp.Delivery
			deliveries, err = channel.Consume(queue, "", false, false, false, false, nil)
			if err == nil {
				go consume(deliveries)
				return channel, lost
			}
		}
		connection.Close()
	}
}

func publish(channel *amqp.Channel, lost chan *amqp.Error, body string) bool {
	message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
	confirm, err := channel.PublishWithDeferredConfirm("", queue, true, false, message)
	if err != nil {
		return false
	}
	patience, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	select {
	case <-confirm.Done():
		return confirm.Acked()
	case <-lost:
	case <-patience.Done():
	}
	return false
}

func complete(count int) bool {
	lock.Lock()
	defer lock.Unlock()
	return len(received) >= count
}

func main() {
	brokers, queue = strings.Split(os.Args[1], ","), os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	channel, lost := opened()
	for number := 0; number < count; number++ {
		for !publish(channel, lost, strconv.Itoa(number)) { // the message is sent again
			channel, lost = opened()
		}
		fmt.Println("confirmed", number)
		time.Sleep(5 * time.Millisecond)
	}
	for !complete(count) {
		select {
		case <-lost:
			channel, lost = opened()
		case <-time.After(20 * time.Millisecond):
		}
	}
	fmt.Println("received", count)
}
