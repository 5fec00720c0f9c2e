<?php
// php amqplib.php ADDRESSES QUEUE COUNT
// Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.
// php-amqplib does not connect again by itself: `opened` does.

require_once "PhpAmqpLib/autoload.php";

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;

[, $addresses, $queue, $count] = $argv;
$received = [];

function broker(string $address): array
{
    [$host, $port] = explode(":", $address);
    return ["host" => $host, "port" => (int) $port, "user" => "guest", "password" => "guest"];
}

function connected(): AMQPStreamConnection
{
    global $addresses;
    $brokers = array_map("broker", explode(",", $addresses));
    $options = ["connection_timeout" => 1.0, "read_write_timeout" => 2.0, "heartbeat" => 1, "channel_rpc_timeout" => 2.0];
    return AMQPStreamConnection::create_connection($brokers, $options); // tries one after the other
}

function opened(): AMQPChannel
{
    global $queue, $received;
    while (true) {
        try {
            $channel = connected()->channel();
            $channel->confirm_select();
            $channel->basic_qos(0, 100, false);
            $channel->basic_consume($queue, "", false, false, false, false, function ($message) use (&$received) {
                $received[$message->getBody()] = true;
                $message->ack();
            });
            return $channel;
        } catch (Exception $error) {
            usleep(100000); // between two rounds
        }
    }
}

$channel = opened();
for ($number = 0; $number < (int) $count; $number++) {
    while (true) {
        try {
            $message = new AMQPMessage((string) $number, ["delivery_mode" => AMQPMessage::DELIVERY_MODE_PERSISTENT]);
            $channel->basic_publish($message, "", $queue, true);
            $channel->wait_for_pending_acks_returns(2.0); // s; a hung broker is given up
            $channel->wait(null, true); // deliveries that are there
            break;
        } catch (Exception $error) {
            $channel = opened(); // the message is sent again
        }
    }
    echo "confirmed $number\n";
    usleep(5000);
}
while (count($received) < (int) $count) {
    try {
        $channel->wait(null, false, 1.0);
    } catch (AMQPTimeoutException $error) {
        continue;
    } catch (Exception $error) {
        $channel = opened();
    }
}
echo "received ", count($received), "\n";
